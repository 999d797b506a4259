//! The command line of `fpga-images`.

use anyhow::Context as _;
use clap::Parser;
use fpga_images::{ClientLibraries, Compression, Parts, Shipped, sha256_of};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes archives of the images that the chart installs, from programs and libraries that were built before.
#[derive(Debug, Parser)]
#[command(name = "fpga-images", version)]
pub struct Args {
    /// Images to make. Default: all that the chart installs.
    #[arg(value_name = "NAME")]
    images: Vec<Shipped>,

    /// Folder of our programs and client libraries, as `make dist` fills it.
    #[arg(long, env = "FPGA_IMAGES_FROM", value_name = "DIR", default_value = "build/dist")]
    from: PathBuf,

    /// kube-scheduler, for the image of that name.
    #[arg(
        long,
        env = "FPGA_KUBE_SCHEDULER",
        value_name = "PATH",
        default_value = "build/control-plane/bin/kube-scheduler"
    )]
    kube_scheduler: PathBuf,

    /// Folder for the archives, NAME.tar, and their bills of materials, NAME.cdx.json. SHA256SUMS there has the checksums of
    /// all of them. With all images that the chart installs, digests.yaml has their digests as values of the chart.
    #[arg(long, env = "FPGA_IMAGES_OUT", value_name = "DIR", default_value = "build/images")]
    out: PathBuf,

    /// What comes before kube-fpga/NAME, such as registry.example/team. `images.registry` of the chart.
    #[arg(long, env = "FPGA_IMAGES_REGISTRY", default_value = "")]
    registry: String,

    /// Tag of our images. `images.tag` of the chart.
    #[arg(long, env = "FPGA_IMAGES_TAG", default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,

    /// The commit that the programs were built from, for a label.
    #[arg(long, env = "FPGA_IMAGES_REVISION", default_value = "")]
    revision: String,

    /// The time of that commit, as 2026-01-31T12:00:00Z. hack/images.sh takes it from SOURCE_DATE_EPOCH or the commit.
    #[arg(long, env = "FPGA_IMAGES_CREATED", default_value = "")]
    created: String,
}

impl Args {
    /// Makes the images, and prints a table of their sizes.
    ///
    /// # Errors
    /// An image can't be made.
    pub fn run(self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("can't make the folder {}", self.out.display()))?;
        let parts = Parts {
            programs: self.from.clone(),
            client_libraries: self.from.clone(),
            portability: ClientLibraries::Portable,
            kube_scheduler: self.kube_scheduler.clone(),
            registry: self.registry.clone(),
            tag: self.tag.clone(),
            revision: self.revision.clone(),
            created: self.created.clone(),
        };
        let images = if self.images.is_empty() { Shipped::OURS.to_vec() } else { self.images.clone() };
        let mut digests = String::from(
            "# The images of this build, by digest: helm install … --values digests.yaml\nimages:\n  digests:\n",
        );
        println!("{:<45} {:>12} {:>10}  archive", "image", "compressed", "unpacked");
        for shipped in images {
            let archive = self.out.join(format!("{shipped}.tar"));
            let image = shipped.image(&parts)?;
            let written = image.write(&archive, Compression::Gzip)?;
            let bill = self.out.join(format!("{shipped}.cdx.json"));
            fs::write(&bill, image.bill()?).with_context(|| format!("can't write {}", bill.display()))?;
            // Writing to a string can't fail.
            let _ = writeln!(digests, "    {shipped}: {}", written.digest);
            let [packed, unpacked] = [written.size.packed, written.size.unpacked].map(mebibytes);
            println!("{:<45} {packed:>12} {unpacked:>10}  {}", image.name(), archive.display());
        }
        if self.images.is_empty() {
            let path = self.out.join("digests.yaml");
            fs::write(&path, digests).with_context(|| format!("can't write {}", path.display()))?;
        }
        write_checksums(&self.out)
    }
}

/// Writes SHA256SUMS, as `sha256sum` reads it, of all archives and bills in the folder, also those of earlier runs.
fn write_checksums(folder: &Path) -> anyhow::Result<()> {
    let failed = || format!("can't write the checksums in {}", folder.display());
    let files = fs::read_dir(folder).with_context(failed)?;
    let names = files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<std::io::Result<Vec<_>>>().with_context(failed)?;
    names
        .retain(|name| [".tar", ".cdx.json"].iter().any(|end| name.ends_with(end)) || name == "digests.yaml");
    names.sort();
    let lines = names.iter().map(|name| {
        let digest = sha256_of(&fs::read(folder.join(name))?);
        Ok(format!("{}  {name}\n", digest.trim_start_matches("sha256:")))
    });
    let sums = lines.collect::<std::io::Result<String>>().with_context(failed)?;
    fs::write(folder.join("SHA256SUMS"), sums).with_context(failed)
}

fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
