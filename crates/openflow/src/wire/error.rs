//! Errors with which the bridge refuses messages. Each error has an OpenFlow error type and code
//! for each version. If a version defines no such error, the type and code are those of Nicira or
//! the ONF.

use switch::flow::{FlowError, MatchError, OptionsError};

use super::ofp::error::*;
use super::ofp::{msg, nx};
use super::{MAX_LENGTH, NICIRA, ONF, Put, TooLong, Version, begin, finish};
use crate::datapath::PortModError;

/// Encoding of an error in one OpenFlow version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// A standard OpenFlow error with its type and code.
    Standard(u16, u16),
    /// An error of Nicira with its type and code, sent as a vendor error. This form is used in OpenFlow versions that
    /// have no experimenter errors.
    Vendor(u16, u16),
    /// An experimenter error with the experimenter ID and the code.
    Experimenter(u32, u16),
}

const fn s(kind: u16, code: u16) -> Code {
    Code::Standard(kind, code)
}
const fn v(kind: u16, code: u16) -> Code {
    Code::Vendor(kind, code)
}
const fn n(code: u16) -> Code {
    Code::Experimenter(NICIRA, code)
}
const fn o(code: u16) -> Code {
    Code::Experimenter(ONF, code)
}
/// Encoding in OpenFlow 1.0 and 1.1 of an error for which these versions have no code
/// (NXBRC_UNENCODABLE_ERROR).
const X10: Code = v(OFPET_BAD_REQUEST, 521);
const X: Code = n(10);

/// Defines the errors. Each row contains the name of an error in the specification, and the error's encodings (type and
/// code). The OpenFlow version before an encoding is the first version in which the encoding is valid.
macro_rules! errors {
    ($($name:ident $text:literal: $($since:ident $code:expr),+;)+) => {
        /// A reason for refusing a message, named as in the specification.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
        pub enum Error {
            $(#[doc = $text] #[error($text)] $name,)+
        }

        impl Error {
            /// All reasons for refusing a message.
            pub const ALL: &[Error] = &[$(Error::$name,)+];

            /// Returns the encoding of the error in messages of this version.
            #[must_use]
            pub const fn code(self, version: Version) -> Code {
                let codes: &[(Version, Code)] =
                    match self { $(Error::$name => const { &[$((Version::$since, $code)),+] },)+ };
                // Selects the code of the latest version that is not later than `version`.
                let mut at = codes.len() - 1;
                while codes[at].0.number() > version.number() {
                    at -= 1;
                }
                codes[at].1
            }
        }
    };
}

errors! {
    HelloIncompatible "OFPHFC_INCOMPATIBLE": V10 s(OFPET_HELLO_FAILED, 0);
    BadVersion "OFPBRC_BAD_VERSION": V10 s(OFPET_BAD_REQUEST, 0);
    BadType "OFPBRC_BAD_TYPE": V10 s(OFPET_BAD_REQUEST, 1);
    BadMultipart "OFPBRC_BAD_STAT": V10 s(OFPET_BAD_REQUEST, 2);
    BadExperimenter "OFPBRC_BAD_VENDOR": V10 s(OFPET_BAD_REQUEST, 3);
    BadSubtype "OFPBRC_BAD_SUBTYPE": V10 s(OFPET_BAD_REQUEST, 4);
    RequestPermission "OFPBRC_EPERM": V10 s(OFPET_BAD_REQUEST, 5);
    BadLength "OFPBRC_BAD_LEN": V10 s(OFPET_BAD_REQUEST, 6);
    UnknownBuffer "OFPBRC_BUFFER_UNKNOWN": V10 s(OFPET_BAD_REQUEST, 8);
    BadTableId "OFPBRC_BAD_TABLE_ID": V10 v(OFPET_BAD_REQUEST, 512), V11 s(OFPET_BAD_REQUEST, 9);
    IsSlave "OFPBRC_IS_SLAVE": V10 s(OFPET_BAD_REQUEST, 5), V12 s(OFPET_BAD_REQUEST, 10);
    BadPort "OFPBRC_BAD_PORT": V10 v(OFPET_BAD_REQUEST, 514), V12 s(OFPET_BAD_REQUEST, 11);
    MultipartOverflow "OFPBRC_MULTIPART_BUFFER_OVERFLOW": V10 X10, V12 X, V13 s(OFPET_BAD_REQUEST, 13);
    PipelineFieldsOnly "OFPBRC_PIPELINE_FIELDS_ONLY": V10 X10, V12 X, V15 s(OFPET_BAD_REQUEST, 17);
    MustBeZero "NXBRC_MUST_BE_ZERO": V10 v(OFPET_BAD_REQUEST, 515), V12 n(4);
    NxmInvalid "NXBRC_NXM_INVALID": V10 v(OFPET_BAD_REQUEST, 256), V12 n(2);
    ActionType "OFPBAC_BAD_TYPE": V10 s(OFPET_BAD_ACTION, 0);
    ActionLength "OFPBAC_BAD_LEN": V10 s(OFPET_BAD_ACTION, 1);
    ActionExperimenter "OFPBAC_BAD_VENDOR": V10 s(OFPET_BAD_ACTION, 2);
    ActionExperimenterType "OFPBAC_BAD_VENDOR_TYPE": V10 s(OFPET_BAD_ACTION, 3);
    ActionPort "OFPBAC_BAD_OUT_PORT": V10 s(OFPET_BAD_ACTION, 4);
    ActionArgument "OFPBAC_BAD_ARGUMENT": V10 s(OFPET_BAD_ACTION, 5);
    ActionTooMany "OFPBAC_TOO_MANY": V10 s(OFPET_BAD_ACTION, 7);
    ActionQueue "OFPBAC_BAD_QUEUE": V10 s(OFPET_BAD_ACTION, 8);
    ActionGroup "OFPBAC_BAD_OUT_GROUP": V10 v(OFPET_BAD_ACTION, 9), V11 s(OFPET_BAD_ACTION, 9);
    ActionInconsistent "OFPBAC_MATCH_INCONSISTENT": V10 v(OFPET_BAD_REQUEST, 522), V11 s(OFPET_BAD_ACTION, 10);
    ActionOrder "OFPBAC_UNSUPPORTED_ORDER": V10 X10, V11 s(OFPET_BAD_ACTION, 11);
    ActionTag "OFPBAC_BAD_TAG": V10 X10, V11 s(OFPET_BAD_ACTION, 12);
    ActionSetType "OFPBAC_BAD_SET_TYPE": V10 v(OFPET_BAD_REQUEST, 523), V12 s(OFPET_BAD_ACTION, 13);
    ActionSetLength "OFPBAC_BAD_SET_LEN": V10 v(OFPET_BAD_REQUEST, 524), V12 s(OFPET_BAD_ACTION, 14);
    ActionSetArgument "OFPBAC_BAD_SET_ARGUMENT": V10 v(OFPET_BAD_REQUEST, 525), V12 s(OFPET_BAD_ACTION, 15);
    ActionSetMask "OFPBAC_BAD_SET_MASK": V10 X10, V12 X, V13 o(4250), V15 s(OFPET_BAD_ACTION, 16);
    ActionMustBeZero "NXBAC_MUST_BE_ZERO": V10 v(OFPET_BAD_ACTION, 256), V12 n(11);
    InstructionUnknown "OFPBIC_UNKNOWN_INST": V10 X10, V11 s(OFPET_BAD_INSTRUCTION, 0);
    InstructionUnsupported "OFPBIC_UNSUP_INST": V10 v(OFPET_BAD_ACTION, 257), V11 s(OFPET_BAD_INSTRUCTION, 1);
    InstructionTable "OFPBIC_BAD_TABLE_ID": V10 X10, V11 s(OFPET_BAD_INSTRUCTION, 2);
    InstructionExperimenter "OFPBIC_BAD_EXPERIMENTER": V10 X10, V11 s(OFPET_BAD_INSTRUCTION, 5);
    InstructionLength "OFPBIC_BAD_LEN": V10 X10, V12 s(OFPET_BAD_INSTRUCTION, 7);
    InstructionTwice "OFPBIC_DUP_INST":
        V10 X10, V11 v(OFPET_BAD_INSTRUCTION, 256), V12 o(2600), V14 s(OFPET_BAD_INSTRUCTION, 9);
    MatchType "OFPBMC_BAD_TYPE": V10 X10, V11 s(OFPET_BAD_MATCH, 0);
    MatchLength "OFPBMC_BAD_LEN": V10 v(OFPET_BAD_REQUEST, 256), V11 s(OFPET_BAD_MATCH, 1);
    MatchWildcards "OFPBMC_BAD_WILDCARDS": V10 v(OFPET_BAD_REQUEST, 262), V11 s(OFPET_BAD_MATCH, 5);
    MatchField "OFPBMC_BAD_FIELD": V10 v(OFPET_HELLO_FAILED, 263), V11 s(OFPET_BAD_MATCH, 6);
    MatchValue "OFPBMC_BAD_VALUE": V10 v(OFPET_BAD_REQUEST, 258), V11 s(OFPET_BAD_MATCH, 7);
    MatchMask "OFPBMC_BAD_MASK": V10 v(OFPET_BAD_REQUEST, 259), V12 s(OFPET_BAD_MATCH, 8);
    MatchPrerequisite "OFPBMC_BAD_PREREQ": V10 v(OFPET_BAD_REQUEST, 260), V12 s(OFPET_BAD_MATCH, 9);
    MatchTwice "OFPBMC_DUP_FIELD": V10 v(OFPET_BAD_REQUEST, 261), V12 s(OFPET_BAD_MATCH, 10);
    FlowUnknown "OFPFMFC_UNKNOWN": V10 X10, V11 s(OFPET_FLOW_MOD_FAILED, 0);
    TableFull "OFPFMFC_TABLE_FULL": V10 s(ofp10::OFPET_FLOW_MOD_FAILED, 0), V11 s(OFPET_FLOW_MOD_FAILED, 1);
    FlowTable "OFPFMFC_BAD_TABLE_ID": V10 v(OFPET_BAD_REQUEST, 512), V11 s(OFPET_FLOW_MOD_FAILED, 2);
    Overlap "OFPFMFC_OVERLAP": V10 s(ofp10::OFPET_FLOW_MOD_FAILED, 1), V11 s(OFPET_FLOW_MOD_FAILED, 3);
    FlowPermission "OFPFMFC_EPERM": V10 s(ofp10::OFPET_FLOW_MOD_FAILED, 2), V11 s(OFPET_FLOW_MOD_FAILED, 4);
    FlowTimeout "OFPFMFC_BAD_TIMEOUT": V10 X10, V11 s(OFPET_FLOW_MOD_FAILED, 5);
    FlowCommand "OFPFMFC_BAD_COMMAND": V10 s(ofp10::OFPET_FLOW_MOD_FAILED, 4), V11 s(OFPET_FLOW_MOD_FAILED, 6);
    FlowFlags "OFPFMFC_BAD_FLAGS":
        V10 v(ofp10::OFPET_FLOW_MOD_FAILED, 258), V11 v(OFPET_FLOW_MOD_FAILED, 258),
        V12 s(OFPET_FLOW_MOD_FAILED, 7);
    GroupExists "OFPGMFC_GROUP_EXISTS": V10 v(OFPET_GROUP_MOD_FAILED, 0), V11 s(OFPET_GROUP_MOD_FAILED, 0);
    GroupInvalid "OFPGMFC_INVALID_GROUP": V10 v(OFPET_GROUP_MOD_FAILED, 1), V11 s(OFPET_GROUP_MOD_FAILED, 1);
    GroupsFull "OFPGMFC_OUT_OF_GROUPS": V10 v(OFPET_GROUP_MOD_FAILED, 3), V11 s(OFPET_GROUP_MOD_FAILED, 3);
    BucketsFull "OFPGMFC_OUT_OF_BUCKETS": V10 v(OFPET_GROUP_MOD_FAILED, 4), V11 s(OFPET_GROUP_MOD_FAILED, 4);
    GroupLoop "OFPGMFC_LOOP": V10 v(OFPET_GROUP_MOD_FAILED, 7), V11 s(OFPET_GROUP_MOD_FAILED, 7);
    GroupUnknown "OFPGMFC_UNKNOWN_GROUP": V10 v(OFPET_GROUP_MOD_FAILED, 8), V11 s(OFPET_GROUP_MOD_FAILED, 8);
    GroupChained "OFPGMFC_CHAINED_GROUP":
        V10 v(OFPET_GROUP_MOD_FAILED, 9), V11 X10, V12 s(OFPET_GROUP_MOD_FAILED, 9);
    GroupType "OFPGMFC_BAD_TYPE": V10 v(OFPET_GROUP_MOD_FAILED, 10), V11 X10, V12 s(OFPET_GROUP_MOD_FAILED, 10);
    GroupCommand "OFPGMFC_BAD_COMMAND":
        V10 v(OFPET_GROUP_MOD_FAILED, 11), V11 X10, V12 s(OFPET_GROUP_MOD_FAILED, 11);
    GroupBucket "OFPGMFC_BAD_BUCKET":
        V10 v(OFPET_GROUP_MOD_FAILED, 12), V11 X10, V12 s(OFPET_GROUP_MOD_FAILED, 12);
    BucketUnknown "OFPGMFC_UNKNOWN_BUCKET":
        V10 v(OFPET_GROUP_MOD_FAILED, 15), V11 X10, V12 X, V13 s(OFPET_GROUP_MOD_FAILED, 1),
        V15 s(OFPET_GROUP_MOD_FAILED, 15);
    BucketExists "OFPGMFC_BUCKET_EXISTS":
        V10 v(OFPET_GROUP_MOD_FAILED, 16), V11 X10, V12 X, V13 s(OFPET_GROUP_MOD_FAILED, 1),
        V15 s(OFPET_GROUP_MOD_FAILED, 16);
    PortUnknown "OFPPMFC_BAD_PORT": V10 s(ofp10::OFPET_PORT_MOD_FAILED, 0), V11 s(OFPET_PORT_MOD_FAILED, 0);
    PortAddress "OFPPMFC_BAD_HW_ADDR": V10 s(ofp10::OFPET_PORT_MOD_FAILED, 1), V11 s(OFPET_PORT_MOD_FAILED, 1);
    PortConfig "OFPPMFC_BAD_CONFIG": V10 X10, V11 s(OFPET_PORT_MOD_FAILED, 2);
    PortPermission "OFPPMFC_EPERM": V10 X10, V12 s(OFPET_PORT_MOD_FAILED, 4);
    TableModTable "OFPTMFC_BAD_TABLE": V10 X10, V11 s(OFPET_TABLE_MOD_FAILED, 0);
    TableModConfig "OFPTMFC_BAD_CONFIG": V10 X10, V11 s(OFPET_TABLE_MOD_FAILED, 1);
    QueuePort "OFPQOFC_BAD_PORT": V10 s(ofp10::OFPET_QUEUE_OP_FAILED, 0), V11 s(OFPET_QUEUE_OP_FAILED, 0);
    QueueUnknown "OFPQOFC_BAD_QUEUE": V10 s(ofp10::OFPET_QUEUE_OP_FAILED, 1), V11 s(OFPET_QUEUE_OP_FAILED, 1);
    ConfigFlags "OFPSCFC_BAD_FLAGS": V10 X10, V11 s(OFPET_SWITCH_CONFIG_FAILED, 0);
    RoleStale "OFPRRFC_STALE": V10 X10, V12 s(OFPET_ROLE_REQUEST_FAILED, 0);
    RoleUnsupported "OFPRRFC_UNSUP": V10 X10, V12 s(OFPET_ROLE_REQUEST_FAILED, 1);
    RoleBad "OFPRRFC_BAD_ROLE": V10 v(OFPET_BAD_REQUEST, 513), V12 s(OFPET_ROLE_REQUEST_FAILED, 2);
    MeterExists "OFPMMFC_METER_EXISTS": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 1);
    MeterInvalid "OFPMMFC_INVALID_METER": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 2);
    MeterUnknown "OFPMMFC_UNKNOWN_METER": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 3);
    MeterCommand "OFPMMFC_BAD_COMMAND": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 4);
    MeterFlags "OFPMMFC_BAD_FLAGS": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 5);
    MeterRate "OFPMMFC_BAD_RATE": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 6);
    MeterBand "OFPMMFC_BAD_BAND": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 8);
    MetersFull "OFPMMFC_OUT_OF_METERS": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 10);
    BandsFull "OFPMMFC_OUT_OF_BANDS": V10 X10, V12 X, V13 s(OFPET_METER_MOD_FAILED, 11);
    FeaturesTable "OFPTFFC_BAD_TABLE": V10 X10, V12 X, V13 s(OFPET_TABLE_FEATURES_FAILED, 0);
    FeaturesPermission "OFPTFFC_EPERM": V10 X10, V12 X, V13 s(OFPET_TABLE_FEATURES_FAILED, 5);
    PropertyType "OFPBPC_BAD_TYPE":
        V10 v(OFPET_TABLE_FEATURES_FAILED, 2), V12 n(25), V13 s(OFPET_TABLE_FEATURES_FAILED, 2),
        V14 s(OFPET_BAD_PROPERTY, 0);
    PropertyLength "OFPBPC_BAD_LEN":
        V10 v(OFPET_TABLE_FEATURES_FAILED, 3), V12 n(26), V13 s(OFPET_TABLE_FEATURES_FAILED, 3),
        V14 s(OFPET_BAD_PROPERTY, 1);
    PropertyValue "OFPBPC_BAD_VALUE":
        V10 v(OFPET_TABLE_FEATURES_FAILED, 4), V12 n(27), V13 s(OFPET_TABLE_FEATURES_FAILED, 4),
        V14 s(OFPET_BAD_PROPERTY, 2);
    PropertyExperimenter "OFPBPC_BAD_EXPERIMENTER":
        V10 v(OFPET_BAD_PROPERTY, 5), V12 n(30), V13 o(4445), V14 s(OFPET_BAD_PROPERTY, 5);
    OptionCommand "NXTTMFC_BAD_COMMAND": V10 v(OFPET_BAD_REQUEST, 527), V12 n(16);
    OptionLength "NXTTMFC_BAD_OPT_LEN": V10 v(OFPET_BAD_REQUEST, 528), V12 n(17);
    OptionPlace "NXTTMFC_BAD_FIELD_IDX": V10 v(OFPET_BAD_REQUEST, 529), V12 n(18);
    OptionsFull "NXTTMFC_TABLE_FULL": V10 v(OFPET_BAD_REQUEST, 530), V12 n(19);
    OptionMapped "NXTTMFC_ALREADY_MAPPED": V10 v(OFPET_BAD_REQUEST, 531), V12 n(20);
    OptionTwice "NXTTMFC_DUP_ENTRY": V10 v(OFPET_BAD_REQUEST, 532), V12 n(21);
    OptionUsed "NXTTMFC_INVALID_TLV_DEL": V10 v(OFPET_BAD_REQUEST, 537), V12 n(38);
    OptionUnmapped "NXFMFC_INVALID_TLV_FIELD": V10 v(OFPET_BAD_REQUEST, 536), V12 n(37);
    AsyncInvalid "OFPACFC_INVALID": V10 X10, V12 X, V13 o(2370), V14 s(OFPET_ASYNC_CONFIG_FAILED, 0);
    AsyncUnsupported "OFPACFC_UNSUPPORTED": V10 X10, V12 X, V13 o(2371), V14 s(OFPET_ASYNC_CONFIG_FAILED, 1);
    BundleId "OFPBFC_BAD_ID": V10 X10, V12 X, V13 o(2302), V14 s(OFPET_BUNDLE_FAILED, 2);
    BundleExists "OFPBFC_BUNDLE_EXIST": V10 X10, V12 X, V13 o(2303), V14 s(OFPET_BUNDLE_FAILED, 3);
    BundleClosed "OFPBFC_BUNDLE_CLOSED": V10 X10, V12 X, V13 o(2304), V14 s(OFPET_BUNDLE_FAILED, 4);
    BundlesFull "OFPBFC_OUT_OF_BUNDLES": V10 X10, V12 X, V13 o(2305), V14 s(OFPET_BUNDLE_FAILED, 5);
    BundleType "OFPBFC_BAD_TYPE": V10 X10, V12 X, V13 o(2306), V14 s(OFPET_BUNDLE_FAILED, 6);
    BundleFlags "OFPBFC_BAD_FLAGS": V10 X10, V12 X, V13 o(2307), V14 s(OFPET_BUNDLE_FAILED, 7);
    BundleMessageLength "OFPBFC_MSG_BAD_LEN": V10 X10, V12 X, V13 o(2308), V14 s(OFPET_BUNDLE_FAILED, 8);
    BundleXid "OFPBFC_MSG_BAD_XID": V10 X10, V12 X, V13 o(2309), V14 s(OFPET_BUNDLE_FAILED, 9);
    BundleMessage "OFPBFC_MSG_UNSUP": V10 X10, V12 X, V13 o(2310), V14 s(OFPET_BUNDLE_FAILED, 10);
    BundleTooMany "OFPBFC_MSG_TOO_MANY": V10 X10, V12 X, V13 o(2312), V14 s(OFPET_BUNDLE_FAILED, 12);
    BundleFailed "OFPBFC_MSG_FAILED": V10 X10, V12 X, V13 o(2313), V14 s(OFPET_BUNDLE_FAILED, 13);
    BundleTimeout "OFPBFC_TIMEOUT": V10 X10, V12 X, V13 o(2314), V14 s(OFPET_BUNDLE_FAILED, 14);
    MonitorUnknown "OFPMOFC_UNKNOWN": V10 X10, V12 X, V14 s(OFPET_FLOW_MONITOR_FAILED, 0);
    MonitorExists "OFPMOFC_MONITOR_EXISTS":
        V10 v(OFPET_BAD_REQUEST, 517), V12 n(6), V14 s(OFPET_FLOW_MONITOR_FAILED, 1);
    MonitorFlags "OFPMOFC_BAD_FLAGS":
        V10 v(OFPET_BAD_REQUEST, 518), V12 n(7), V14 s(OFPET_FLOW_MONITOR_FAILED, 5);
    MonitorMissing "OFPMOFC_UNKNOWN_MONITOR":
        V10 v(OFPET_BAD_REQUEST, 519), V12 n(8), V14 s(OFPET_FLOW_MONITOR_FAILED, 3);
    MonitorCommand "OFPMOFC_BAD_COMMAND": V10 X10, V12 X, V14 s(OFPET_FLOW_MONITOR_FAILED, 4);
}

impl Error {
    /// Appends the error message that answers `request`. The message contains the complete request
    /// if the request fits into a message of 65,535 octets, like in Open vSwitch. The specification
    /// requires at least 64 octets of the request.
    pub fn write(self, out: &mut Vec<u8>, version: Version, xid: u32, request: &[u8]) {
        let start = begin(out, version, msg::OFPT_ERROR, xid);
        match self.code(version) {
            Code::Standard(kind, code) => {
                out.u16(kind);
                out.u16(code);
            }
            Code::Vendor(kind, code) => {
                out.u16(nx::NXET_VENDOR);
                out.u16(nx::NXVC_VENDOR_ERROR);
                out.u32(NICIRA);
                out.u16(kind);
                out.u16(code);
            }
            Code::Experimenter(experimenter, code) => {
                out.u16(OFPET_EXPERIMENTER);
                out.u16(code);
                out.u32(experimenter);
            }
        }
        let room = MAX_LENGTH - (out.len() - start);
        out.extend_from_slice(&request[..request.len().min(room)]);
        // The message is at most as long as a message may be.
        let _ = finish(out, start);
    }
}

/// Converts the error for a reply that is too long into the OpenFlow error that comes closest, because OpenFlow has no
/// error for such a reply.
impl From<TooLong> for Error {
    fn from(_: TooLong) -> Error {
        Error::MultipartOverflow
    }
}

impl From<MatchError> for Error {
    fn from(error: MatchError) -> Error {
        match error {
            MatchError::Prerequisite(_) => Error::MatchPrerequisite,
            MatchError::Mask(_) => Error::MatchMask,
            MatchError::OutsideMask(_) => Error::MatchWildcards,
            MatchError::Twice(_) => Error::MatchTwice,
            MatchError::Value(_) => Error::MatchValue,
        }
    }
}

impl From<FlowError> for Error {
    fn from(error: FlowError) -> Error {
        match error {
            FlowError::UnmappedOption => Error::OptionUnmapped,
            FlowError::TableFull => Error::TableFull,
            FlowError::BadTable => Error::FlowTable,
            FlowError::HiddenTable => Error::RequestPermission,
            FlowError::Overlap => Error::Overlap,
            FlowError::Permission => Error::FlowPermission,
            FlowError::BadTimeout => Error::FlowTimeout,
            FlowError::BadCommand => Error::FlowCommand,
            FlowError::BadGoto => Error::InstructionTable,
            FlowError::UnsupportedInstruction => Error::InstructionUnsupported,
            FlowError::BadAction => Error::ActionType,
            FlowError::BadOutPort => Error::ActionPort,
            FlowError::BadArgument => Error::ActionArgument,
            FlowError::BadOutGroup => Error::ActionGroup,
            FlowError::BadSetType => Error::ActionSetType,
            FlowError::BadSetArgument => Error::ActionSetArgument,
            FlowError::MatchInconsistent => Error::ActionInconsistent,
            FlowError::UnsupportedOrder => Error::ActionOrder,
            FlowError::TooMany => Error::ActionTooMany,
            FlowError::TooMuchWork => Error::BundleTooMany,
            FlowError::GroupExists => Error::GroupExists,
            FlowError::InvalidGroup => Error::GroupInvalid,
            FlowError::UnknownGroup => Error::GroupUnknown,
            FlowError::OutOfGroups => Error::GroupsFull,
            FlowError::OutOfBuckets => Error::BucketsFull,
            FlowError::GroupLoop => Error::GroupLoop,
            FlowError::ChainedGroup => Error::GroupChained,
            FlowError::UnknownBucket => Error::BucketUnknown,
            FlowError::BucketExists => Error::BucketExists,
            FlowError::MeterExists => Error::MeterExists,
            FlowError::UnknownMeter => Error::MeterUnknown,
            FlowError::InvalidMeter => Error::MeterInvalid,
            FlowError::BadBand => Error::MeterBand,
            FlowError::BadRate => Error::MeterRate,
            FlowError::OutOfMeters => Error::MetersFull,
            FlowError::OutOfBands => Error::BandsFull,
            FlowError::UnknownBuffer => Error::UnknownBuffer,
            FlowError::BadPort => Error::BadPort,
            FlowError::Match(error) => error.into(),
        }
    }
}

impl From<OptionsError> for Error {
    fn from(error: OptionsError) -> Error {
        match error {
            OptionsError::Length => Error::OptionLength,
            OptionsError::Place => Error::OptionPlace,
            OptionsError::Full => Error::OptionsFull,
            OptionsError::Mapped => Error::OptionMapped,
            OptionsError::Twice => Error::OptionTwice,
            OptionsError::Used => Error::OptionUsed,
        }
    }
}

impl From<PortModError> for Error {
    fn from(error: PortModError) -> Error {
        match error {
            PortModError::NoPort => Error::PortUnknown,
            PortModError::Address => Error::PortAddress,
            PortModError::Config => Error::PortConfig,
            PortModError::Permission => Error::PortPermission,
        }
    }
}
