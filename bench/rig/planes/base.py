"""What the rig asks of a data plane: start between `d0` and `d1` of a lab, forward, stop."""

import shutil

from ..lab import Lab


class Plane:
    """One way to forward frames between two devices."""

    key = ""
    title = ""
    #: `user`: a polling process on the plane's core, receiving NAPI on the generator's. `kernel`: receiving NAPI threaded, on
    #: the plane's core. Throughput is compared within a group only.
    group = "user"
    #: What the plane does with a frame, in a few words.
    work = ""
    #: Programs that must be installed.
    needs: tuple[str, ...] = ()
    #: Receives by NAPI only while its devices take GRO (planes without XDP program on their devices).
    napi_by_gro = False

    def missing(self) -> str | None:
        """Why the plane cannot be measured here, None when it can."""
        for program in self.needs:
            if shutil.which(program) is None:
                return f"{program} is not installed; run `ci/setup bench`"
        return None

    def version(self) -> str:
        """Name and version, as the program tells."""
        return ""

    def start(self, lab: Lab) -> None:
        """Starts forwarding; returns when the plane is configured (the rig then waits for a ping)."""
        raise NotImplementedError

    def before_load(self, lab: Lab) -> None:
        """Called before full-rate frames."""
        if self.napi_by_gro:
            lab.receive_with_napi(True)

    def before_hosts(self, lab: Lab) -> None:
        """Called before ping and TCP, which want segments no longer than the MTU."""
        if self.napi_by_gro:
            lab.receive_with_napi(False)

    def figures(self, lab: Lab) -> dict:
        """What else is measured of the plane while it is idle; becomes part of the round."""
        return {}

    def stop(self) -> None:
        """Ends what `start` began, whatever state it is in; the lab's devices go with the lab."""
