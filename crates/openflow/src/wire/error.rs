//! Errors with which messages are refused. Each error has an OpenFlow error type and code for each version.
//! Where a version has none, the error has a type and code of Nicira or the ONF.

use switch::flow::{FlowError, MatchError, OptionsError};

use super::{NICIRA, ONF, Put, Version, begin, finish};
use crate::datapath::PortModError;

/// Encoding of an error in one OpenFlow version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// A standard error with its type and code.
    Standard(u16, u16),
    /// An error of Nicira with its type and code, sent as a vendor error. It is used in versions that have no
    /// experimenter errors.
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
/// Code for errors for which a version has no code (NXBRC_UNENCODABLE_ERROR).
const X10: Code = v(1, 521);
const X: Code = n(10);

macro_rules! errors {
    ($($name:ident $text:literal: $v10:expr, $v11:expr, $v12:expr, $v13:expr, $v14:expr, $v15:expr;)+) => {
        /// A reason for refusing a message, named as in the specification.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
        pub enum Error {
            $(#[doc = $text] #[error($text)] $name,)+
        }

        impl Error {
            /// All error reasons.
            pub const ALL: &[Error] = &[$(Error::$name,)+];

            /// Returns the encoding of the error in messages of this version.
            #[must_use]
            pub const fn code(self, version: Version) -> Code {
                let codes: [Code; 6] =
                    match self { $(Error::$name => [$v10, $v11, $v12, $v13, $v14, $v15],)+ };
                match version {
                    Version::V10 => codes[0],
                    Version::V11 => codes[1],
                    Version::V12 => codes[2],
                    Version::V13 => codes[3],
                    Version::V14 => codes[4],
                    Version::V15 => codes[5],
                }
            }
        }
    };
}

errors! {
    HelloIncompatible "OFPHFC_INCOMPATIBLE": s(0, 0), s(0, 0), s(0, 0), s(0, 0), s(0, 0), s(0, 0);
    BadVersion "OFPBRC_BAD_VERSION": s(1, 0), s(1, 0), s(1, 0), s(1, 0), s(1, 0), s(1, 0);
    BadType "OFPBRC_BAD_TYPE": s(1, 1), s(1, 1), s(1, 1), s(1, 1), s(1, 1), s(1, 1);
    BadMultipart "OFPBRC_BAD_STAT": s(1, 2), s(1, 2), s(1, 2), s(1, 2), s(1, 2), s(1, 2);
    BadExperimenter "OFPBRC_BAD_VENDOR": s(1, 3), s(1, 3), s(1, 3), s(1, 3), s(1, 3), s(1, 3);
    BadSubtype "OFPBRC_BAD_SUBTYPE": s(1, 4), s(1, 4), s(1, 4), s(1, 4), s(1, 4), s(1, 4);
    RequestPermission "OFPBRC_EPERM": s(1, 5), s(1, 5), s(1, 5), s(1, 5), s(1, 5), s(1, 5);
    BadLength "OFPBRC_BAD_LEN": s(1, 6), s(1, 6), s(1, 6), s(1, 6), s(1, 6), s(1, 6);
    UnknownBuffer "OFPBRC_BUFFER_UNKNOWN": s(1, 8), s(1, 8), s(1, 8), s(1, 8), s(1, 8), s(1, 8);
    BadTableId "OFPBRC_BAD_TABLE_ID": v(1, 512), s(1, 9), s(1, 9), s(1, 9), s(1, 9), s(1, 9);
    IsSlave "OFPBRC_IS_SLAVE": s(1, 5), s(1, 5), s(1, 10), s(1, 10), s(1, 10), s(1, 10);
    BadPort "OFPBRC_BAD_PORT": v(1, 514), v(1, 514), s(1, 11), s(1, 11), s(1, 11), s(1, 11);
    MultipartOverflow "OFPBRC_MULTIPART_BUFFER_OVERFLOW": X10, X10, X, s(1, 13), s(1, 13), s(1, 13);
    PipelineFieldsOnly "OFPBRC_PIPELINE_FIELDS_ONLY": X10, X10, X, X, X, s(1, 17);
    MustBeZero "NXBRC_MUST_BE_ZERO": v(1, 515), v(1, 515), n(4), n(4), n(4), n(4);
    NxmInvalid "NXBRC_NXM_INVALID": v(1, 256), v(1, 256), n(2), n(2), n(2), n(2);
    ActionType "OFPBAC_BAD_TYPE": s(2, 0), s(2, 0), s(2, 0), s(2, 0), s(2, 0), s(2, 0);
    ActionLength "OFPBAC_BAD_LEN": s(2, 1), s(2, 1), s(2, 1), s(2, 1), s(2, 1), s(2, 1);
    ActionExperimenter "OFPBAC_BAD_VENDOR": s(2, 2), s(2, 2), s(2, 2), s(2, 2), s(2, 2), s(2, 2);
    ActionExperimenterType "OFPBAC_BAD_VENDOR_TYPE": s(2, 3), s(2, 3), s(2, 3), s(2, 3), s(2, 3), s(2, 3);
    ActionPort "OFPBAC_BAD_OUT_PORT": s(2, 4), s(2, 4), s(2, 4), s(2, 4), s(2, 4), s(2, 4);
    ActionArgument "OFPBAC_BAD_ARGUMENT": s(2, 5), s(2, 5), s(2, 5), s(2, 5), s(2, 5), s(2, 5);
    ActionTooMany "OFPBAC_TOO_MANY": s(2, 7), s(2, 7), s(2, 7), s(2, 7), s(2, 7), s(2, 7);
    ActionQueue "OFPBAC_BAD_QUEUE": s(2, 8), s(2, 8), s(2, 8), s(2, 8), s(2, 8), s(2, 8);
    ActionGroup "OFPBAC_BAD_OUT_GROUP": v(2, 9), s(2, 9), s(2, 9), s(2, 9), s(2, 9), s(2, 9);
    ActionInconsistent "OFPBAC_MATCH_INCONSISTENT": v(1, 522), s(2, 10), s(2, 10), s(2, 10), s(2, 10), s(2, 10);
    ActionOrder "OFPBAC_UNSUPPORTED_ORDER": X10, s(2, 11), s(2, 11), s(2, 11), s(2, 11), s(2, 11);
    ActionTag "OFPBAC_BAD_TAG": X10, s(2, 12), s(2, 12), s(2, 12), s(2, 12), s(2, 12);
    ActionSetType "OFPBAC_BAD_SET_TYPE": v(1, 523), v(1, 523), s(2, 13), s(2, 13), s(2, 13), s(2, 13);
    ActionSetLength "OFPBAC_BAD_SET_LEN": v(1, 524), v(1, 524), s(2, 14), s(2, 14), s(2, 14), s(2, 14);
    ActionSetArgument "OFPBAC_BAD_SET_ARGUMENT": v(1, 525), v(1, 525), s(2, 15), s(2, 15), s(2, 15), s(2, 15);
    ActionSetMask "OFPBAC_BAD_SET_MASK": X10, X10, X, o(4250), o(4250), s(2, 16);
    ActionMustBeZero "NXBAC_MUST_BE_ZERO": v(2, 256), v(2, 256), n(11), n(11), n(11), n(11);
    InstructionUnknown "OFPBIC_UNKNOWN_INST": X10, s(3, 0), s(3, 0), s(3, 0), s(3, 0), s(3, 0);
    InstructionUnsupported "OFPBIC_UNSUP_INST": v(2, 257), s(3, 1), s(3, 1), s(3, 1), s(3, 1), s(3, 1);
    InstructionTable "OFPBIC_BAD_TABLE_ID": X10, s(3, 2), s(3, 2), s(3, 2), s(3, 2), s(3, 2);
    InstructionExperimenter "OFPBIC_BAD_EXPERIMENTER": X10, s(3, 5), s(3, 5), s(3, 5), s(3, 5), s(3, 5);
    InstructionLength "OFPBIC_BAD_LEN": X10, X10, s(3, 7), s(3, 7), s(3, 7), s(3, 7);
    InstructionTwice "OFPBIC_DUP_INST": X10, v(3, 256), o(2600), o(2600), s(3, 9), s(3, 9);
    MatchType "OFPBMC_BAD_TYPE": X10, s(4, 0), s(4, 0), s(4, 0), s(4, 0), s(4, 0);
    MatchLength "OFPBMC_BAD_LEN": v(1, 256), s(4, 1), s(4, 1), s(4, 1), s(4, 1), s(4, 1);
    MatchWildcards "OFPBMC_BAD_WILDCARDS": v(1, 262), s(4, 5), s(4, 5), s(4, 5), s(4, 5), s(4, 5);
    MatchField "OFPBMC_BAD_FIELD": v(0, 263), s(4, 6), s(4, 6), s(4, 6), s(4, 6), s(4, 6);
    MatchValue "OFPBMC_BAD_VALUE": v(1, 258), s(4, 7), s(4, 7), s(4, 7), s(4, 7), s(4, 7);
    MatchMask "OFPBMC_BAD_MASK": v(1, 259), v(1, 259), s(4, 8), s(4, 8), s(4, 8), s(4, 8);
    MatchPrerequisite "OFPBMC_BAD_PREREQ": v(1, 260), v(1, 260), s(4, 9), s(4, 9), s(4, 9), s(4, 9);
    MatchTwice "OFPBMC_DUP_FIELD": v(1, 261), v(1, 261), s(4, 10), s(4, 10), s(4, 10), s(4, 10);
    FlowUnknown "OFPFMFC_UNKNOWN": X10, s(5, 0), s(5, 0), s(5, 0), s(5, 0), s(5, 0);
    TableFull "OFPFMFC_TABLE_FULL": s(3, 0), s(5, 1), s(5, 1), s(5, 1), s(5, 1), s(5, 1);
    FlowTable "OFPFMFC_BAD_TABLE_ID": v(1, 512), s(5, 2), s(5, 2), s(5, 2), s(5, 2), s(5, 2);
    Overlap "OFPFMFC_OVERLAP": s(3, 1), s(5, 3), s(5, 3), s(5, 3), s(5, 3), s(5, 3);
    FlowPermission "OFPFMFC_EPERM": s(3, 2), s(5, 4), s(5, 4), s(5, 4), s(5, 4), s(5, 4);
    FlowTimeout "OFPFMFC_BAD_TIMEOUT": X10, s(5, 5), s(5, 5), s(5, 5), s(5, 5), s(5, 5);
    FlowCommand "OFPFMFC_BAD_COMMAND": s(3, 4), s(5, 6), s(5, 6), s(5, 6), s(5, 6), s(5, 6);
    FlowFlags "OFPFMFC_BAD_FLAGS": v(3, 258), v(5, 258), s(5, 7), s(5, 7), s(5, 7), s(5, 7);
    GroupExists "OFPGMFC_GROUP_EXISTS": v(6, 0), s(6, 0), s(6, 0), s(6, 0), s(6, 0), s(6, 0);
    GroupInvalid "OFPGMFC_INVALID_GROUP": v(6, 1), s(6, 1), s(6, 1), s(6, 1), s(6, 1), s(6, 1);
    GroupsFull "OFPGMFC_OUT_OF_GROUPS": v(6, 3), s(6, 3), s(6, 3), s(6, 3), s(6, 3), s(6, 3);
    BucketsFull "OFPGMFC_OUT_OF_BUCKETS": v(6, 4), s(6, 4), s(6, 4), s(6, 4), s(6, 4), s(6, 4);
    GroupLoop "OFPGMFC_LOOP": v(6, 7), s(6, 7), s(6, 7), s(6, 7), s(6, 7), s(6, 7);
    GroupUnknown "OFPGMFC_UNKNOWN_GROUP": v(6, 8), s(6, 8), s(6, 8), s(6, 8), s(6, 8), s(6, 8);
    GroupChained "OFPGMFC_CHAINED_GROUP": v(6, 9), X10, s(6, 9), s(6, 9), s(6, 9), s(6, 9);
    GroupType "OFPGMFC_BAD_TYPE": v(6, 10), X10, s(6, 10), s(6, 10), s(6, 10), s(6, 10);
    GroupCommand "OFPGMFC_BAD_COMMAND": v(6, 11), X10, s(6, 11), s(6, 11), s(6, 11), s(6, 11);
    GroupBucket "OFPGMFC_BAD_BUCKET": v(6, 12), X10, s(6, 12), s(6, 12), s(6, 12), s(6, 12);
    BucketUnknown "OFPGMFC_UNKNOWN_BUCKET": v(6, 15), X10, X, s(6, 1), s(6, 1), s(6, 15);
    BucketExists "OFPGMFC_BUCKET_EXISTS": v(6, 16), X10, X, s(6, 1), s(6, 1), s(6, 16);
    PortUnknown "OFPPMFC_BAD_PORT": s(4, 0), s(7, 0), s(7, 0), s(7, 0), s(7, 0), s(7, 0);
    PortAddress "OFPPMFC_BAD_HW_ADDR": s(4, 1), s(7, 1), s(7, 1), s(7, 1), s(7, 1), s(7, 1);
    PortConfig "OFPPMFC_BAD_CONFIG": X10, s(7, 2), s(7, 2), s(7, 2), s(7, 2), s(7, 2);
    PortPermission "OFPPMFC_EPERM": X10, X10, s(7, 4), s(7, 4), s(7, 4), s(7, 4);
    TableModTable "OFPTMFC_BAD_TABLE": X10, s(8, 0), s(8, 0), s(8, 0), s(8, 0), s(8, 0);
    TableModConfig "OFPTMFC_BAD_CONFIG": X10, s(8, 1), s(8, 1), s(8, 1), s(8, 1), s(8, 1);
    QueuePort "OFPQOFC_BAD_PORT": s(5, 0), s(9, 0), s(9, 0), s(9, 0), s(9, 0), s(9, 0);
    QueueUnknown "OFPQOFC_BAD_QUEUE": s(5, 1), s(9, 1), s(9, 1), s(9, 1), s(9, 1), s(9, 1);
    ConfigFlags "OFPSCFC_BAD_FLAGS": X10, s(10, 0), s(10, 0), s(10, 0), s(10, 0), s(10, 0);
    RoleStale "OFPRRFC_STALE": X10, X10, s(11, 0), s(11, 0), s(11, 0), s(11, 0);
    RoleUnsupported "OFPRRFC_UNSUP": X10, X10, s(11, 1), s(11, 1), s(11, 1), s(11, 1);
    RoleBad "OFPRRFC_BAD_ROLE": v(1, 513), v(1, 513), s(11, 2), s(11, 2), s(11, 2), s(11, 2);
    MeterExists "OFPMMFC_METER_EXISTS": X10, X10, X, s(12, 1), s(12, 1), s(12, 1);
    MeterInvalid "OFPMMFC_INVALID_METER": X10, X10, X, s(12, 2), s(12, 2), s(12, 2);
    MeterUnknown "OFPMMFC_UNKNOWN_METER": X10, X10, X, s(12, 3), s(12, 3), s(12, 3);
    MeterCommand "OFPMMFC_BAD_COMMAND": X10, X10, X, s(12, 4), s(12, 4), s(12, 4);
    MeterFlags "OFPMMFC_BAD_FLAGS": X10, X10, X, s(12, 5), s(12, 5), s(12, 5);
    MeterRate "OFPMMFC_BAD_RATE": X10, X10, X, s(12, 6), s(12, 6), s(12, 6);
    MeterBand "OFPMMFC_BAD_BAND": X10, X10, X, s(12, 8), s(12, 8), s(12, 8);
    MetersFull "OFPMMFC_OUT_OF_METERS": X10, X10, X, s(12, 10), s(12, 10), s(12, 10);
    BandsFull "OFPMMFC_OUT_OF_BANDS": X10, X10, X, s(12, 11), s(12, 11), s(12, 11);
    FeaturesTable "OFPTFFC_BAD_TABLE": X10, X10, X, s(13, 0), s(13, 0), s(13, 0);
    FeaturesPermission "OFPTFFC_EPERM": X10, X10, X, s(13, 5), s(13, 5), s(13, 5);
    PropertyType "OFPBPC_BAD_TYPE": v(13, 2), v(13, 2), n(25), s(13, 2), s(14, 0), s(14, 0);
    PropertyLength "OFPBPC_BAD_LEN": v(13, 3), v(13, 3), n(26), s(13, 3), s(14, 1), s(14, 1);
    PropertyValue "OFPBPC_BAD_VALUE": v(13, 4), v(13, 4), n(27), s(13, 4), s(14, 2), s(14, 2);
    PropertyExperimenter "OFPBPC_BAD_EXPERIMENTER": v(14, 5), v(14, 5), n(30), o(4445), s(14, 5), s(14, 5);
    OptionCommand "NXTTMFC_BAD_COMMAND": v(1, 527), v(1, 527), n(16), n(16), n(16), n(16);
    OptionLength "NXTTMFC_BAD_OPT_LEN": v(1, 528), v(1, 528), n(17), n(17), n(17), n(17);
    OptionPlace "NXTTMFC_BAD_FIELD_IDX": v(1, 529), v(1, 529), n(18), n(18), n(18), n(18);
    OptionsFull "NXTTMFC_TABLE_FULL": v(1, 530), v(1, 530), n(19), n(19), n(19), n(19);
    OptionMapped "NXTTMFC_ALREADY_MAPPED": v(1, 531), v(1, 531), n(20), n(20), n(20), n(20);
    OptionTwice "NXTTMFC_DUP_ENTRY": v(1, 532), v(1, 532), n(21), n(21), n(21), n(21);
    OptionUsed "NXTTMFC_INVALID_TLV_DEL": v(1, 537), v(1, 537), n(38), n(38), n(38), n(38);
    OptionUnmapped "NXFMFC_INVALID_TLV_FIELD": v(1, 536), v(1, 536), n(37), n(37), n(37), n(37);
    AsyncInvalid "OFPACFC_INVALID": X10, X10, X, o(2370), s(15, 0), s(15, 0);
    AsyncUnsupported "OFPACFC_UNSUPPORTED": X10, X10, X, o(2371), s(15, 1), s(15, 1);
    BundleId "OFPBFC_BAD_ID": X10, X10, X, o(2302), s(17, 2), s(17, 2);
    BundleExists "OFPBFC_BUNDLE_EXIST": X10, X10, X, o(2303), s(17, 3), s(17, 3);
    BundleClosed "OFPBFC_BUNDLE_CLOSED": X10, X10, X, o(2304), s(17, 4), s(17, 4);
    BundlesFull "OFPBFC_OUT_OF_BUNDLES": X10, X10, X, o(2305), s(17, 5), s(17, 5);
    BundleType "OFPBFC_BAD_TYPE": X10, X10, X, o(2306), s(17, 6), s(17, 6);
    BundleFlags "OFPBFC_BAD_FLAGS": X10, X10, X, o(2307), s(17, 7), s(17, 7);
    BundleMessageLength "OFPBFC_MSG_BAD_LEN": X10, X10, X, o(2308), s(17, 8), s(17, 8);
    BundleXid "OFPBFC_MSG_BAD_XID": X10, X10, X, o(2309), s(17, 9), s(17, 9);
    BundleMessage "OFPBFC_MSG_UNSUP": X10, X10, X, o(2310), s(17, 10), s(17, 10);
    BundleTooMany "OFPBFC_MSG_TOO_MANY": X10, X10, X, o(2312), s(17, 12), s(17, 12);
    BundleFailed "OFPBFC_MSG_FAILED": X10, X10, X, o(2313), s(17, 13), s(17, 13);
    BundleTimeout "OFPBFC_TIMEOUT": X10, X10, X, o(2314), s(17, 14), s(17, 14);
    MonitorUnknown "OFPMOFC_UNKNOWN": X10, X10, X, X, s(16, 0), s(16, 0);
    MonitorExists "OFPMOFC_MONITOR_EXISTS": v(1, 517), v(1, 517), n(6), n(6), s(16, 1), s(16, 1);
    MonitorFlags "OFPMOFC_BAD_FLAGS": v(1, 518), v(1, 518), n(7), n(7), s(16, 5), s(16, 5);
    MonitorMissing "OFPMOFC_UNKNOWN_MONITOR": v(1, 519), v(1, 519), n(8), n(8), s(16, 3), s(16, 3);
    MonitorCommand "OFPMOFC_BAD_COMMAND": X10, X10, X, X, s(16, 4), s(16, 4);
}

impl Error {
    /// Appends the error message that answers `request`. The message contains the complete request, as long
    /// as it does not exceed the maximum message length of 65,535 octets. Open vSwitch does so, too. The
    /// specification requires at least 64 octets of the request.
    pub fn write(self, out: &mut Vec<u8>, version: Version, xid: u32, request: &[u8]) {
        let start = begin(out, version, 1, xid);
        match self.code(version) {
            Code::Standard(kind, code) => {
                out.u16(kind);
                out.u16(code);
            }
            Code::Vendor(kind, code) => {
                out.u16(0xb0c2);
                out.u16(0);
                out.u32(NICIRA);
                out.u16(kind);
                out.u16(code);
            }
            Code::Experimenter(experimenter, code) => {
                out.u16(0xffff);
                out.u16(code);
                out.u32(experimenter);
            }
        }
        let room = usize::from(u16::MAX) - (out.len() - start);
        out.extend_from_slice(&request[..request.len().min(room)]);
        finish(out, start);
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
