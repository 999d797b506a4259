//! The bill of materials of an image (SBOM), in CycloneDX 1.6: Debian's packages, and the crates in our programs.

use crate::debian::{Distribution, Package};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A crate in a program, as `cargo auditable` names it there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether it is from crates.io.
    pub(crate) is_published: bool,
}

/// What an image is made of.
#[derive(Debug, Default)]
pub(crate) struct Materials {
    pub(crate) distribution: Option<Distribution>,
    pub(crate) packages: BTreeSet<Package>,
    pub(crate) crates: BTreeSet<Crate>,
}

/// The bill of the image `name`. `created` is a time of RFC 3339, or empty. The same materials give the same bill.
pub(crate) fn bill(name: &str, created: &str, materials: &Materials) -> Value {
    let (name, version) = name.rsplit_once(':').unwrap_or((name, ""));
    let distribution = materials.distribution.as_ref();
    let system = distribution.map(|distribution| {
        json!({"type": "operating-system", "bom-ref": "system", "name": distribution.id, "version": distribution.version})
    });
    let packages = materials.packages.iter().map(|package| {
        let purl = purl_of_package(package, distribution);
        json!({"type": "library", "bom-ref": purl, "name": package.name, "version": package.version, "purl": purl})
    });
    let crates = materials.crates.iter().map(|one| {
        let (name, version) = (&one.name, &one.version);
        let purl = format!("pkg:cargo/{name}@{}", encoded(version));
        let mut component = json!({"type": "library", "bom-ref": purl, "name": name, "version": version});
        if one.is_published {
            component["purl"] = purl.into();
        }
        component
    });
    let mut metadata =
        json!({"component": {"type": "container", "bom-ref": "image", "name": name, "version": version}});
    if !created.is_empty() {
        metadata["timestamp"] = created.into();
    }
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata,
        "components": system.into_iter().chain(packages).chain(crates).collect::<Vec<_>>(),
    })
}

/// The package's URL, with the source package by which scanners know of faults.
fn purl_of_package(package: &Package, distribution: Option<&Distribution>) -> String {
    let Package { name, version, architecture, source, .. } = package;
    let (id, release) = distribution.map_or(("debian", String::new()), |of| {
        (of.id.as_str(), format!("&distro={}-{}", of.id, of.version))
    });
    let upstream = source.as_ref().map_or_else(String::new, |(source, of)| {
        let version = if of == version { String::new() } else { format!("@{of}") };
        format!("&upstream={}", encoded(&format!("{source}{version}")))
    });
    format!("pkg:deb/{id}/{}@{}?arch={architecture}{release}{upstream}", encoded(name), encoded(version))
}

/// Percent-encodes what has a meaning in a package's URL.
fn encoded(text: &str) -> String {
    text.replace('%', "%25").replace('+', "%2B").replace(':', "%3A").replace('@', "%40")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_names_packages_and_crates_by_urls_that_scanners_know() {
        let package = Package {
            name: "libgcc-s1".to_owned(),
            version: "12.2.0-14+deb12u1".to_owned(),
            architecture: "amd64".to_owned(),
            source: Some(("gcc-12".to_owned(), "1:12.2".to_owned())),
            status: String::new(),
            checksums: String::new(),
        };
        let mk_crate = |name: &str, is_published| Crate {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            is_published,
        };
        let materials = Materials {
            distribution: Some(Distribution { id: "debian".to_owned(), version: "12".to_owned() }),
            packages: [package].into(),
            crates: [mk_crate("ours", false), mk_crate("serde", true)].into(),
        };
        let bill = bill("localhost:5000/a/b:7", "2026-01-02T03:04:05Z", &materials);
        let of = |key: &str| -> Vec<_> {
            bill["components"].as_array().unwrap().iter().map(|component| component[key].clone()).collect()
        };
        assert_eq!(of("name"), ["debian", "libgcc-s1", "ours", "serde"]);
        assert_eq!(
            of("purl"),
            [
                Value::Null,
                "pkg:deb/debian/libgcc-s1@12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12&upstream=gcc-12%401%3A12.2".into(),
                Value::Null,
                "pkg:cargo/serde@1.0.0".into(),
            ]
        );
        assert_eq!(bill["metadata"]["component"]["name"], "localhost:5000/a/b");
        assert_eq!(bill["metadata"]["timestamp"], "2026-01-02T03:04:05Z");
    }
}
