//! The command line of `fpga-images`.

use anyhow::Context as _;
use clap::Parser;
use fpga_images::{ClientLibraries, Compression, Parts, Shipped};
use std::path::PathBuf;

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

    /// Folder for the archives, NAME.tar.
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
}

impl Args {
    /// Makes the images, and prints a table of their sizes.
    ///
    /// # Errors
    /// An image can't be made.
    pub fn run(self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("can't make the folder {}", self.out.display()))?;
        let parts = Parts {
            programs: self.from.clone(),
            client_libraries: self.from,
            portability: ClientLibraries::Portable,
            kube_scheduler: self.kube_scheduler,
            registry: self.registry,
            tag: self.tag,
            revision: self.revision,
        };
        let images = if self.images.is_empty() { Shipped::OURS.to_vec() } else { self.images };
        println!("{:<45} {:>12} {:>10}  archive", "image", "compressed", "unpacked");
        for shipped in images {
            let archive = self.out.join(format!("{shipped}.tar"));
            let image = shipped.image(&parts)?;
            let size = image.write(&archive, Compression::Gzip)?;
            let [packed, unpacked] = [size.packed, size.unpacked].map(mebibytes);
            println!("{:<45} {packed:>12} {unpacked:>10}  {}", image.name(), archive.display());
        }
        Ok(())
    }
}

fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
