//! The form of an artifact: an OCI image manifest (image-spec 1.1), a configuration in JSON, and a layer for each
//! bitstream.

use crate::artifact::{Artifact, InvalidArtifact, MAX_BITSTREAM_BYTES, MAX_VARIANTS};
use crate::sha256::of_bytes;
use fpga_core::bitstream::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The artifact's type in the manifest.
pub const ARTIFACT_TYPE: &str = "application/vnd.fpga-scheduling.bitstream.v1";
/// Media type of the configuration.
pub const CONFIG_TYPE: &str = "application/vnd.fpga-scheduling.bitstream.config.v1+json";
/// Media type of a bitstream.
pub const LAYER_TYPE: &str = "application/vnd.fpga-scheduling.bitstream.layer.v1";
/// Media type of the manifest.
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Longest manifest, in bytes.
pub const MAX_MANIFEST_BYTES: u64 = 256 * 1024;
/// Longest configuration, in bytes.
pub const MAX_CONFIG_BYTES: u64 = 64 * 1024;

/// A blob of an artifact: what it is, and its digest and length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the bytes.
    pub media_type: String,
    /// Digest of the bytes.
    pub digest: Digest,
    /// Number of the bytes.
    pub size: u64,
}

/// A manifest that has the form of our artifacts. Its configuration is still to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Digest of the manifest itself.
    pub digest: Digest,
    /// The configuration.
    pub config: Descriptor,
    /// The bitstreams, each once.
    pub layers: Vec<Descriptor>,
}

/// An artifact as bytes, but for the bitstreams.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// The manifest.
    pub manifest: Manifest,
    /// The bytes of the manifest.
    pub manifest_bytes: Vec<u8>,
    /// The bytes of the configuration.
    pub config_bytes: Vec<u8>,
    /// What the configuration says.
    pub artifact: Artifact,
}

/// The reason why bytes are no manifest or no configuration of an artifact.
#[derive(Debug, thiserror::Error)]
pub enum InvalidManifest {
    /// The manifest is no JSON of the form.
    #[error("the manifest is no OCI image manifest: {0}")]
    Json(#[source] serde_json::Error),
    /// The artifact is something else, such as a container image.
    #[error(
        "it is no bitstream but {0:?}; `kubectl fpga bitstream push` makes artifacts of the type {ARTIFACT_TYPE}"
    )]
    Type(String),
    /// The manifest has no layer, or more than variants are possible.
    #[error("the manifest has {0} layers; 1 to {MAX_VARIANTS} are taken")]
    Layers(usize),
    /// A layer is empty or too long, or is listed twice.
    #[error("layer {0} is listed twice, is empty, or is longer than {MAX_BITSTREAM_BYTES} bytes")]
    Layer(Digest),
    /// The configuration is too long.
    #[error("the configuration has {0} bytes; at most {MAX_CONFIG_BYTES} are taken")]
    ConfigTooLong(u64),
    /// The configuration has another digest or length than the manifest says.
    #[error("the configuration is not the one of the manifest: digest or length differ")]
    OtherConfig,
    /// The configuration is no JSON of the form.
    #[error("the configuration can't be understood: {0}")]
    Config(#[source] serde_json::Error),
    /// A field of the configuration is wrong.
    #[error("the configuration is wrong: {0}")]
    Artifact(#[from] InvalidArtifact),
    /// The variants are not the layers.
    #[error("the variants of the configuration and the layers of the manifest differ at {0}")]
    VariantsAndLayers(Digest),
}

/// The JSON of a manifest, as far as it matters.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    schema_version: u32,
    media_type: Option<String>,
    artifact_type: Option<String>,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl Packed {
    /// The form of `artifact`. The same artifact gives the same bytes.
    ///
    /// # Errors
    /// A field of the artifact is wrong.
    pub fn new(artifact: &Artifact) -> Result<Self, InvalidManifest> {
        artifact.check()?;
        let config_bytes = serde_json::to_vec(artifact).map_err(InvalidManifest::Config)?;
        let config = Descriptor {
            media_type: CONFIG_TYPE.to_owned(),
            digest: of_bytes(&config_bytes),
            size: config_bytes.len() as u64,
        };
        let mut layers: Vec<Descriptor> = Vec::new();
        for variant in &artifact.variants {
            if !layers.iter().any(|layer| layer.digest == variant.digest) {
                let media_type = LAYER_TYPE.to_owned();
                layers.push(Descriptor { media_type, digest: variant.digest, size: variant.bytes });
            }
        }
        let json = Json {
            schema_version: 2,
            media_type: Some(MANIFEST_TYPE.to_owned()),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            config,
            layers,
        };
        let manifest_bytes = serde_json::to_vec(&json).map_err(InvalidManifest::Json)?;
        let manifest = Manifest::parse(&manifest_bytes)?;
        let artifact = manifest.artifact(&config_bytes)?;
        Ok(Self { manifest, manifest_bytes, config_bytes, artifact })
    }
}

impl Manifest {
    /// Parses a manifest that anybody may have written.
    ///
    /// # Errors
    /// It has another form, or numbers beyond the bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidManifest> {
        let json: Json = match serde_json::from_slice(bytes) {
            Ok(json) => json,
            // Another kind of object, such as an index of images, is called by its type.
            Err(error) => {
                return Err(match type_of(bytes) {
                    Some(kind) if kind != MANIFEST_TYPE => InvalidManifest::Type(kind),
                    _ => InvalidManifest::Json(error),
                });
            }
        };
        let kind = json.artifact_type.unwrap_or_else(|| json.config.media_type.clone());
        if kind != ARTIFACT_TYPE || json.config.media_type != CONFIG_TYPE {
            return Err(InvalidManifest::Type(kind));
        }
        if json.config.size > MAX_CONFIG_BYTES {
            return Err(InvalidManifest::ConfigTooLong(json.config.size));
        }
        if !(1..=MAX_VARIANTS).contains(&json.layers.len()) {
            return Err(InvalidManifest::Layers(json.layers.len()));
        }
        let mut sizes = BTreeMap::new();
        for layer in &json.layers {
            if layer.media_type != LAYER_TYPE {
                return Err(InvalidManifest::Type(layer.media_type.clone()));
            }
            let is_possible = (1..=MAX_BITSTREAM_BYTES).contains(&layer.size);
            if !is_possible || sizes.insert(layer.digest, layer.size).is_some() {
                return Err(InvalidManifest::Layer(layer.digest));
            }
        }
        Ok(Self { digest: of_bytes(bytes), config: json.config, layers: json.layers })
    }

    /// What the configuration says, once it is read.
    ///
    /// # Errors
    /// `config` is not the manifest's, has another form, or names other bitstreams than the layers.
    pub fn artifact(&self, config: &[u8]) -> Result<Artifact, InvalidManifest> {
        if config.len() as u64 != self.config.size || of_bytes(config) != self.config.digest {
            return Err(InvalidManifest::OtherConfig);
        }
        let artifact: Artifact = serde_json::from_slice(config).map_err(InvalidManifest::Config)?;
        artifact.check()?;
        let layers: BTreeMap<Digest, u64> =
            self.layers.iter().map(|layer| (layer.digest, layer.size)).collect();
        let mut unused = layers.clone();
        for variant in &artifact.variants {
            if layers.get(&variant.digest) != Some(&variant.bytes) {
                return Err(InvalidManifest::VariantsAndLayers(variant.digest));
            }
            unused.remove(&variant.digest);
        }
        match unused.into_keys().next() {
            Some(digest) => Err(InvalidManifest::VariantsAndLayers(digest)),
            None => Ok(artifact),
        }
    }
}

fn type_of(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        media_type: String,
    }
    Some(serde_json::from_slice::<Typed>(bytes).ok()?.media_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::tests::artifact;
    use serde_json::{Value, json};

    #[test]
    fn an_artifact_survives_its_form_and_equal_bitstreams_are_one_layer() {
        let artifact = artifact(&[b"one", b"two", b"one"]);
        let packed = Packed::new(&artifact).unwrap();
        let manifest = Manifest::parse(&packed.manifest_bytes).unwrap();
        assert_eq!(manifest.artifact(&packed.config_bytes).unwrap(), artifact);
        assert_eq!(manifest.layers.len(), 2);
        assert_eq!(Packed::new(&artifact).unwrap().manifest_bytes, packed.manifest_bytes);
    }

    #[test]
    fn a_manifest_with_too_much_or_of_something_else_is_refused() {
        let packed = Packed::new(&artifact(&[b"one", b"two"])).unwrap();
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut json: Value = serde_json::from_slice(&packed.manifest_bytes).unwrap();
            change(&mut json);
            Manifest::parse(json.to_string().as_bytes()).unwrap_err().to_string()
        };
        let layer = |index: u8, size: u64| json!({"mediaType": LAYER_TYPE, "digest": of_bytes(&[index]), "size": size});
        let many: Vec<Value> = (0..65).map(|index| layer(index, 1)).collect();
        for (path, value, message) in [
            ("/layers", json!(many), "has 65 layers; 1 to 64 are taken"),
            ("/layers", json!([]), "has 0 layers"),
            ("/layers", json!([layer(1, 5), layer(1, 6)]), "listed twice"),
            ("/layers/0/size", json!(0), "is empty"),
            ("/layers/0/size", json!(u64::MAX), "longer than 4294967296"),
            ("/layers/0/size", json!(-1), "no OCI image manifest"),
            ("/layers/0/digest", json!("sha256:../../etc/passwd"), "no OCI image manifest"),
            (
                "/layers/0/mediaType",
                json!("application/vnd.oci.image.layer.v1.tar"),
                "it is no bitstream but",
            ),
            ("/config/size", json!(1 << 20), "the configuration has 1048576 bytes"),
            (
                "/config/mediaType",
                json!("application/vnd.oci.image.config.v1+json"),
                "it is no bitstream but",
            ),
            ("/artifactType", json!("text/plain"), "it is no bitstream but \"text/plain\""),
        ] {
            let error = changed(&|json| *json.pointer_mut(path).unwrap() = value.clone());
            assert!(error.contains(message), "{path}: {error}");
        }
        let index = json!({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []});
        let error = Manifest::parse(index.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("image.index.v1+json"), "{error}");
    }

    #[test]
    fn a_configuration_that_the_manifest_does_not_have_is_refused() {
        let one = Packed::new(&artifact(&[b"one"])).unwrap();
        let other = Packed::new(&artifact(&[b"other"])).unwrap();
        assert!(matches!(one.manifest.artifact(&other.config_bytes), Err(InvalidManifest::OtherConfig)));
        // A manifest of the one's configuration and the other's layers.
        let mut mixed = one.manifest.clone();
        mixed.layers = other.manifest.layers;
        let error = mixed.artifact(&one.config_bytes).unwrap_err();
        assert!(matches!(error, InvalidManifest::VariantsAndLayers(_)), "{error}");
        // A layer that no variant names.
        let mut more = one.manifest.clone();
        more.layers.extend(mixed.layers);
        let error = more.artifact(&one.config_bytes).unwrap_err();
        assert!(matches!(error, InvalidManifest::VariantsAndLayers(_)), "{error}");
    }
}
