//! Faults of a board, of its manager, and of the runtime.

use super::Watched;

/// Managers that end one after the other. The pauses between them are seconds in all.
const ENDED_MANAGERS: usize = 4;

impl Watched {
    pub(super) async fn boards_fail(&self) {
        self.site.controls.stuck(true);
        self.fires("FpgaBoardUnhealthy").await;
        self.site.controls.stuck(false);
        self.calms_down().await;
        self.site.controls.unplugged(true);
        self.fires("FpgaBoardLost").await;
        self.site.controls.unplugged(false);
        self.calms_down().await;
    }

    pub(super) async fn managers_fail(&self) {
        let files = &self.site.files;
        // No bitstream has a name with a space.
        let broken = files.bitstreams().join("so bel.bitstream");
        std::fs::write(&broken, "bitstream").unwrap();
        self.fires("FpgaBitstreamFilesRefused").await;
        std::fs::remove_file(broken).unwrap();
        self.calms_down().await;

        std::fs::remove_file(files.runtime()).unwrap();
        self.fires("FpgaDevicesNotListed").await;
        files.install_runtime();
        self.calms_down().await;

        for _ in 0..ENDED_MANAGERS {
            self.site.kill_board_manager().await;
        }
        self.fires("FpgaManagerRestarts").await;
        self.calms_down().await;

        // A file stands where the next manager needs its folder.
        let aside = files.managers().with_extension("aside");
        std::fs::rename(files.managers(), &aside).unwrap();
        std::fs::write(files.managers(), "").unwrap();
        self.site.kill_board_manager().await;
        self.fires("FpgaBoardHasNoManager").await;
        std::fs::remove_file(files.managers()).unwrap();
        std::fs::rename(aside, files.managers()).unwrap();
        self.calms_down().await;
    }
}
