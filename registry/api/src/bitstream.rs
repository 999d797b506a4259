//! The resource `Bitstream`.

use crate::interface::AcceleratorInterface;
use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An accelerator. The name of the object is the name that pods write, so that a namespace has no name twice.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "fpga-scheduling.io",
    version = "v1alpha1",
    kind = "Bitstream",
    doc = "An accelerator: the boards that it was built for, and where its bytes are. Pods ask for it by the name of the object.",
    namespaced,
    status = "BitstreamStatus",
    derive = "PartialEq",
    shortname = "bits",
    category = "fpga",
    printcolumn(
        name = "Allowed",
        type_ = "string",
        json_path = ".spec.allowedNamespaces.from",
        description = "Namespaces whose pods may use the accelerator"
    ),
    printcolumn(
        name = "First-Board",
        type_ = "string",
        json_path = ".spec.variants[0].board",
        description = "Board of the first variant"
    ),
    printcolumn(
        name = "Shell",
        type_ = "string",
        json_path = ".spec.variants[0].shell",
        description = "Shell of the first variant",
        priority = 1
    ),
    printcolumn(
        name = "Digest",
        type_ = "string",
        json_path = ".spec.variants[0].digest",
        description = "Digest of the first variant",
        priority = 1
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.validNodes",
        description = "Nodes with a board that a variant was built for"
    ),
    printcolumn(
        name = "Resident",
        type_ = "integer",
        json_path = ".status.residentNodes",
        description = "Nodes with a variant in a slot"
    ),
    printcolumn(
        name = "Pods",
        type_ = "integer",
        json_path = ".status.pods",
        description = "Pods that name it and have not ended"
    ),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].reason",
        description = "Whether it counts, where namespaces have quotas of Bitstreams, or why not",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 128").message("the name of an accelerator has at most 128 characters; write a shorter metadata.name")
)]
#[serde(rename_all = "camelCase")]
pub struct BitstreamSpec {
    /// The bitstreams of the accelerator, one for each kind of board and size of region.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = Rule::new("self.size() >= 1").message("variants is empty; write at least one, with vendor, board, shell, digest, bytes and source"),
        merge_strategy = ListMerge::Map(
            ["vendor", "board", "shell", "regionSize"].map(str::to_owned).to_vec()
        )
    )]
    pub variants: Vec<Variant>,
    /// Namespaces whose pods may use the accelerator. Pods of the Bitstream's own namespace always may.
    #[serde(default)]
    pub allowed_namespaces: AllowedNamespaces,
    /// What the kernel takes and gives. Only jobs of the pool need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<AcceleratorInterface>,
}

/// A bitstream of the accelerator: bytes that were built for one kind of board.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// Vendor of the board, as in the node label `fpga-scheduling.io/fpga-vendor`.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')").message("vendor is no label value; write what the nodes have in the label fpga-scheduling.io/fpga-vendor, for example intel"))]
    pub vendor: String,
    /// Name of the board, as in the node label `fpga-scheduling.io/board`.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')").message("board is no label value; write what the nodes have in the label fpga-scheduling.io/board, for example a10gx"))]
    pub board: String,
    /// Version of the board's shell, as in the node label `fpga-scheduling.io/shell-version`.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')").message("shell is no label value; write what the nodes have in the label fpga-scheduling.io/shell-version, for example 1.2"))]
    pub shell: String,
    /// Number of the board's slots that the region of the bitstream takes.
    #[serde(default = "one_slot")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 64").message("regionSize is a number of slots; write 1 to 64"))]
    pub region_size: i32,
    /// SHA-256 of the bytes.
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')").message("digest is no SHA-256; write sha256: and 64 lower-case hexadecimal digits, as `sha256sum FILE` prints them"))]
    pub digest: String,
    /// Number of the bytes.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 4294967296").message("bytes is the size of the bitstream; write 1 to 4294967296 (4 GiB), as `stat -c %s FILE` prints it"))]
    pub bytes: i64,
    /// Where the bytes are.
    #[x_kube(validation = Rule::new("has(self.oci) != has(self.https)").message("source has one place; write either `oci: REGISTRY/REPOSITORY@sha256:DIGEST` or `https: https://HOST/PATH`"))]
    pub source: Source,
    /// Requests per second that the accelerator completes at most, in one region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self > 0.0").message("peakRequestsPerSecond is not positive; write for example 152.5, or leave it out"))]
    pub peak_requests_per_second: Option<f64>,
}

/// Where the bytes of a bitstream are: one of the fields.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// An OCI artifact by digest, for example `registry.example/team/sobel@sha256:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+@sha256:[0-9a-f]{64}$')").message("source.oci names no artifact by digest; write REGISTRY/REPOSITORY@sha256:DIGEST, as `kubectl fpga bitstream push` prints it"))]
    pub oci: Option<String>,
    /// An address whose answer has exactly the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new("self.matches('^https://[a-zA-Z0-9.-]+(:[0-9]{1,5})?/[!-~]*$') && !self.contains('#')").message("source.https is no address; write https://HOST/PATH, without user, password and #"))]
    pub https: Option<String>,
}

/// Namespaces whose pods may use an accelerator, as `allowedRoutes.namespaces` of the Gateway API has it.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.from == 'Selector') == has(self.selector)").message("a selector goes with `from: Selector` and with nothing else; write both or none of them"))]
pub struct AllowedNamespaces {
    /// `Same`: the Bitstream's own namespace; `All`: every namespace; `Selector`: those whose labels `selector` selects,
    /// too.
    #[serde(default)]
    pub from: FromNamespaces,
    /// Labels of namespaces, for `from: Selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
}

/// The kinds of [`AllowedNamespaces`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FromNamespaces {
    /// Only the Bitstream's own namespace.
    #[default]
    Same,
    /// Every namespace.
    All,
    /// The Bitstream's own namespace, and those that a selector selects.
    Selector,
}

/// What is known of an accelerator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BitstreamStatus {
    /// Conditions, each with the generation of the object that it was observed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Number of nodes with a board that a variant was built for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_nodes: Option<i32>,
    /// Number of nodes with a variant in a slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_nodes: Option<i32>,
    /// Number of pods that name it and have not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<i32>,
}

fn one_slot() -> i32 {
    1
}
