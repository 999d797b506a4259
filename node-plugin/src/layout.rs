//! Where things lie on the node and in containers. Each file that a container or a manager sees is made here.
//!
//! ```text
//!  /run/fpga/managers/BOARD/dm.sock          made by the board's manager; the whole folder is in every container, since a
//!                                            mounted socket would be dead after the manager's restart
//!  /run/fpga/tokens/BOARD/NAMESPACE/ID       root's, or also the managers' group's; the manager's --tokens
//!  /run/fpga/gate/gate.sock                  the plugin's answers for managers; of root's, or also the managers' group's
//!  /run/fpga/claims/ID/{token,managers}      one container has the folder ID; the folder above is root's
//!  /var/lib/kubelet/plugins/fpga-scheduling.io/{lib/,fpga.icd,allocations.json}
//!  /var/lib/kubelet/plugins/fpga-scheduling.io/store/            files by digest
//!  /var/lib/kubelet/plugins/fpga-scheduling.io/libraries/        what the API server has told the gate, by namespace
//!  /var/lib/kubelet/plugins/fpga-scheduling.io/bitstreams/ID/    one container has the folder ID: links to files of the store,
//!                                            and to those of the node's own folder, as the container sees that
//! ```

use crate::allocations::{AllocationId, Claim};
use fpga_artifacts::{MAX_BITSTREAM_BYTES, of_file};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, fchown, symlink,
};
use std::path::{Path, PathBuf};

/// File name of a manager's socket in its folder.
pub(crate) const SOCKET: &str = "dm.sock";
/// File name of the socket of the gate in its folder.
const GATE_SOCKET: &str = "gate.sock";
/// File name of the client library.
pub(crate) const LIBRARY: &str = "libfpga_opencl_icd.so";

/// Folder of the claim in a container.
pub(crate) const CLAIM_IN_CONTAINER: &str = "/run/fpga/claim";
/// Folder of the managers in a container.
pub(crate) const MANAGERS_IN_CONTAINER: &str = "/run/fpga/managers";
/// Folder of the client library in a container.
pub(crate) const LIBRARY_IN_CONTAINER: &str = "/run/fpga/lib";
/// Folder of the bitstreams in a container.
pub(crate) const BITSTREAMS_IN_CONTAINER: &str = "/run/fpga/bitstreams";
/// Folder of the node's own bitstreams in a container, where the folder above has links to them.
pub(crate) const NODE_BITSTREAMS_IN_CONTAINER: &str = "/run/fpga/node-bitstreams";
/// The file that makes OpenCL's loader find the client library. Other platforms of the image keep theirs.
pub(crate) const ICD_IN_CONTAINER: &str = "/etc/OpenCL/vendors/fpga.icd";

/// Mode of folders that only root may enter.
const PRIVATE: u32 = 0o700;
/// Mode of folders that a container's user, whoever that is, may read.
const READABLE: u32 = 0o755;
/// Mode of the managers' folder where managers are not root's: their group makes folders in it, and nobody removes
/// those of others.
const SHARED: u32 = 0o1775;
/// Mode of folders with tokens that the managers' group may read.
const OF_GROUP: u32 = 0o750;

/// The folders of the plugin on the node.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// `/run/fpga`
    pub(crate) run: PathBuf,
    /// `/var/lib/kubelet/plugins/fpga-scheduling.io`
    pub(crate) plugin: PathBuf,
    /// Group of managers that are not root's. It may read tokens and make boards' folders.
    pub(crate) managers_gid: Option<u32>,
}

impl Layout {
    /// Makes the folders.
    ///
    /// # Errors
    /// A folder can't be made.
    pub(crate) fn make(&self) -> io::Result<()> {
        for folder in [self.claims(), self.bitstreams(), self.store(), self.libraries()] {
            make_folder(&folder, PRIVATE)?;
        }
        make_folder(&self.library_folder(), READABLE)?;
        self.make_for_managers(&self.managers(), READABLE, SHARED)?;
        self.make_for_managers(&self.gate(), PRIVATE, OF_GROUP)?;
        self.make_for_managers(&self.tokens(), PRIVATE, OF_GROUP)
    }

    /// Makes the folder of a board's tokens if there is none: a manager starts only where it can read it.
    ///
    /// # Errors
    /// The folder can't be made.
    pub(crate) fn make_tokens_folder(&self, board: &str) -> io::Result<()> {
        let folder = self.tokens().join(board);
        if folder.is_dir() { Ok(()) } else { self.make_for_managers(&folder, PRIVATE, OF_GROUP) }
    }

    /// Makes a folder of the managers: with the first mode where they are root's, else with the second one and their
    /// group.
    fn make_for_managers(&self, folder: &Path, of_root: u32, of_group: u32) -> io::Result<()> {
        let Some(gid) = self.managers_gid else { return make_folder(folder, of_root) };
        // A folder that is there keeps its mode until it has the right one: containers use it.
        match DirBuilder::new().mode(PRIVATE).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        chown(folder, None, Some(gid))?;
        fs::set_permissions(folder, Permissions::from_mode(of_group))
    }

    pub(crate) fn managers(&self) -> PathBuf {
        self.run.join("managers")
    }

    pub(crate) fn socket(&self, board: &str) -> PathBuf {
        self.managers().join(board).join(SOCKET)
    }

    fn gate(&self) -> PathBuf {
        self.run.join("gate")
    }

    pub(crate) fn gate_socket(&self) -> PathBuf {
        self.gate().join(GATE_SOCKET)
    }

    fn tokens(&self) -> PathBuf {
        self.run.join("tokens")
    }

    fn claims(&self) -> PathBuf {
        self.run.join("claims")
    }

    pub(crate) fn claim(&self, id: &AllocationId) -> PathBuf {
        self.claims().join(id.as_str())
    }

    /// The folder of the store of bitstreams.
    pub(crate) fn store(&self) -> PathBuf {
        self.plugin.join("store")
    }

    /// The folder of what the API server has told the gate, a file for each namespace.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.plugin.join("libraries")
    }

    fn bitstreams(&self) -> PathBuf {
        self.plugin.join("bitstreams")
    }

    /// The folder of a container's bitstreams. It has links to files of the store, so it is on the same file system.
    pub(crate) fn bitstreams_of(&self, id: &AllocationId) -> PathBuf {
        self.bitstreams().join(id.as_str())
    }

    pub(crate) fn library_folder(&self) -> PathBuf {
        self.plugin.join("lib")
    }

    pub(crate) fn icd(&self) -> PathBuf {
        self.plugin.join("fpga.icd")
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.plugin.join("allocations.json")
    }

    /// Copies the client library to where containers find it, and writes its `.icd` file. Containers that run keep the
    /// library that they have loaded.
    ///
    /// # Errors
    /// The library can't be read, or the copy can't be written.
    pub(crate) fn install_library(&self, library: &Path) -> io::Result<()> {
        replace(&self.library_folder().join(LIBRARY), &fs::read(library)?, 0o755, None)?;
        let icd = format!("{LIBRARY_IN_CONTAINER}/{LIBRARY}\n");
        replace(&self.icd(), icd.as_bytes(), 0o644, None)
    }

    pub(crate) fn make_claim_folder(&self, id: &AllocationId) -> io::Result<()> {
        make_folder(&self.claim(id), READABLE)?;
        make_folder(&self.bitstreams_of(id), READABLE)
    }

    pub(crate) fn remove_claim_folder(&self, id: &AllocationId) -> io::Result<()> {
        unless_missing(fs::remove_dir_all(self.bitstreams_of(id)))?;
        unless_missing(fs::remove_dir_all(self.claim(id)))
    }

    /// Fills the folder of the container's bitstreams anew: `files` of the store by their paths in it, and what lies in
    /// the node's own folder and has no such name. The container does not run.
    ///
    /// # Errors
    /// A link can't be made.
    pub(crate) fn lay_out_bitstreams(
        &self,
        id: &AllocationId,
        files: &BTreeMap<String, PathBuf>,
        of_node: Option<&Path>,
    ) -> io::Result<()> {
        let folder = self.bitstreams_of(id);
        make_folder(&folder, READABLE)?;
        for old in children(&folder)? {
            if old.is_dir() && !old.is_symlink() { fs::remove_dir_all(old)? } else { fs::remove_file(old)? }
        }
        for (path, file) in files {
            let link = folder.join(path);
            // A name of another namespace has the namespace as its folder.
            link.parent().map_or(Ok(()), |parent| make_folder(parent, READABLE))?;
            fs::hard_link(file, link)?;
        }
        for file in of_node.map_or(Ok(Vec::new()), children)? {
            let name = name(&file);
            match symlink(Path::new(NODE_BITSTREAMS_IN_CONTAINER).join(name), folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the container's folder has all bitstreams of the claim, with the bytes of their digests.
    pub(crate) fn has_bitstreams(&self, id: &AllocationId, claim: &Claim) -> bool {
        let folder = self.bitstreams_of(id);
        claim.bitstreams.iter().all(|(path, digest)| {
            let found = of_file(&folder.join(path), MAX_BITSTREAM_BYTES);
            found.is_ok_and(|(found, _)| found == *digest)
        })
    }

    /// Writes the token for the managers of the claim's boards, then the claim's folder.
    ///
    /// # Errors
    /// A file can't be written. Files that were written stay.
    pub(crate) fn grant(&self, id: &AllocationId, claim: &Claim) -> io::Result<()> {
        for board in &claim.boards {
            let file = self.token(board, id, claim);
            let of_tenant = file.parent().unwrap_or(&file);
            self.make_for_managers(&self.tokens().join(board), PRIVATE, OF_GROUP)?;
            self.make_for_managers(of_tenant, PRIVATE, OF_GROUP)?;
            let mode = if self.managers_gid.is_some() { 0o640 } else { 0o600 };
            replace(&file, claim.token.secret().as_bytes(), mode, self.managers_gid)?;
        }
        let managers: String = claim
            .boards
            .iter()
            .map(|board| format!("unix:{MANAGERS_IN_CONTAINER}/{board}/{SOCKET}\n"))
            .collect();
        let folder = self.claim(id);
        replace(&folder.join("token"), claim.token.secret().as_bytes(), 0o644, None)?;
        replace(&folder.join("managers"), managers.as_bytes(), 0o644, None)
    }

    /// Removes the token from the managers of the claim's boards.
    ///
    /// # Errors
    /// A file can't be removed.
    pub(crate) fn revoke(&self, id: &AllocationId, claim: &Claim) -> io::Result<()> {
        for board in &claim.boards {
            let file = self.token(board, id, claim);
            unless_missing(fs::remove_file(&file))?;
            // The folder stays where the tenant has other tokens.
            if let Some(of_tenant) = file.parent() {
                let _ = fs::remove_dir(of_tenant);
            }
        }
        Ok(())
    }

    fn token(&self, board: &str, id: &AllocationId, claim: &Claim) -> PathBuf {
        // Managers take the workload for their metrics from the name.
        let name = match &claim.workload {
            Some(workload) => format!("{}@{}", workload.as_str(), id.as_str()),
            None => id.as_str().to_owned(),
        };
        self.tokens().join(board).join(&claim.owner.namespace).join(name)
    }

    /// Removes tokens and folders that no allocation has: a plugin that ended between saving and acting left them.
    ///
    /// # Errors
    /// A folder can't be read, or a file can't be removed.
    pub(crate) fn remove_strays<'c>(
        &self,
        ids: &BTreeSet<&AllocationId>,
        claims: &BTreeMap<&'c AllocationId, &'c Claim>,
    ) -> io::Result<()> {
        let ids: BTreeSet<&str> = ids.iter().map(|id| id.as_str()).collect();
        for folder in [children(&self.claims())?, children(&self.bitstreams())?].concat() {
            if !ids.contains(name(&folder)) {
                unless_missing(fs::remove_dir_all(&folder))?;
            }
        }
        let tokens: BTreeSet<PathBuf> = claims
            .iter()
            .flat_map(|(id, claim)| claim.boards.iter().map(|board| self.token(board, id, claim)))
            .collect();
        for board in children(&self.tokens())? {
            for tenant in children(&board)? {
                for token in children(&tenant)? {
                    if !tokens.contains(&token) {
                        unless_missing(fs::remove_file(&token))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(READABLE).create(folder)?;
    // The process's umask counts for a new folder, and an old one may have any mode.
    fs::set_permissions(folder, Permissions::from_mode(mode))
}

/// Writes a file that readers see either as it was or whole. Managers skip files whose names begin with a dot.
fn replace(path: &Path, bytes: &[u8], mode: u32, gid: Option<u32>) -> io::Result<()> {
    let partial = path.with_file_name(format!(".{}.partial", name(path)));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&partial)?;
    fchown(&file, None, gid)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    fs::rename(&partial, path)
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::{Owner, Token, WorkloadName};
    use std::os::unix::fs::MetadataExt as _;

    fn mk_claim(boards: &[&str]) -> Claim {
        let owner = Owner {
            namespace: "shop".into(),
            pod: "cart".into(),
            uid: "u1".into(),
            container: "main".into(),
        };
        let boards = boards.iter().map(|board| (*board).to_owned()).collect();
        let workload = WorkloadName::of("cart", None);
        Claim {
            owner,
            boards,
            token: Token::of("secret-secret-secret"),
            workload,
            bitstreams: BTreeMap::new(),
        }
    }

    fn mk_layout(folder: &Path) -> Layout {
        let layout = Layout { run: folder.join("run"), plugin: folder.join("plugin"), managers_gid: None };
        layout.make().unwrap();
        layout
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_grant_names_the_boards_to_the_container_and_the_token_to_their_managers_until_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let layout = mk_layout(folder.path());
        let (id, claim) = (AllocationId::of("a1"), mk_claim(&["b0", "b1"]));
        layout.make_claim_folder(&id).unwrap();
        for _ in 0..2 {
            layout.grant(&id, &claim).unwrap();
        }
        let text = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!(
            text(layout.claim(&id).join("managers")),
            "unix:/run/fpga/managers/b0/dm.sock\nunix:/run/fpga/managers/b1/dm.sock\n"
        );
        assert_eq!(text(layout.claim(&id).join("token")), "secret-secret-secret");
        assert_eq!(text(layout.tokens().join("b1/shop/cart@a1")), "secret-secret-secret");
        for _ in 0..2 {
            layout.revoke(&id, &claim).unwrap();
        }
        assert_eq!(children(&layout.tokens().join("b0")).unwrap(), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn only_root_enters_the_folders_of_tokens_and_of_claims() {
        let folder = tempfile::tempdir().unwrap();
        let layout = mk_layout(folder.path());
        assert_eq!((mode(&layout.tokens()), mode(&layout.claims())), (0o700, 0o700));
        assert_eq!(mode(&layout.managers()), 0o755);
    }

    #[test]
    fn the_managers_group_reads_tokens_and_makes_boards_folders_and_nobody_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let gid = nix::unistd::getgid().as_raw();
        let layout = Layout { managers_gid: Some(gid), ..mk_layout(folder.path()) };
        layout.make().unwrap();
        layout.make_tokens_folder("b1").unwrap();
        let (id, claim) = (AllocationId::of("a1"), mk_claim(&["b0"]));
        layout.make_claim_folder(&id).unwrap();
        layout.grant(&id, &claim).unwrap();
        let token = layout.token("b0", &id, &claim);
        let of_tenant = token.parent().unwrap();
        for path in [&layout.tokens(), &layout.tokens().join("b1"), &layout.tokens().join("b0"), of_tenant] {
            assert_eq!((mode(path), fs::metadata(path).unwrap().gid()), (0o750, gid), "{}", path.display());
        }
        assert_eq!((mode(&token), fs::metadata(&token).unwrap().gid()), (0o640, gid));
        assert_eq!((mode(&layout.managers()), mode(&layout.claims())), (0o1775, 0o700));
    }

    #[test]
    fn strays_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let layout = mk_layout(folder.path());
        let (kept, stray) = (AllocationId::of("a1"), AllocationId::of("a2"));
        let claim = mk_claim(&["b0"]);
        for id in [&kept, &stray] {
            layout.make_claim_folder(id).unwrap();
            layout.grant(id, &claim).unwrap();
        }
        layout.remove_strays(&[&kept].into(), &[(&kept, &claim)].into()).unwrap();
        assert!(layout.claim(&kept).exists() && !layout.claim(&stray).exists());
        assert_eq!(children(&layout.tokens().join("b0/shop")).unwrap(), [layout.token("b0", &kept, &claim)]);
    }

    #[test]
    fn a_container_sees_files_of_the_store_before_those_of_the_node_and_a_restart_shows_new_ones() {
        let root = tempfile::tempdir().unwrap();
        let layout = mk_layout(root.path());
        let id = AllocationId::of("a1");
        layout.make_claim_folder(&id).unwrap();
        let of_node = root.path().join("node");
        fs::create_dir(&of_node).unwrap();
        for name in ["sobel.bitstream", "mm.bitstream"] {
            fs::write(of_node.join(name), "the node's").unwrap();
        }
        let file = |name: &str| {
            let path = layout.store().join(name);
            fs::write(&path, name).unwrap();
            path
        };
        let files = [("sobel.bitstream", file("1")), ("library/sobel.bitstream", file("2"))];
        let files = files.map(|(path, file)| (path.to_owned(), file));
        layout.lay_out_bitstreams(&id, &files.into(), Some(&of_node)).unwrap();
        let seen = |name: &str| layout.bitstreams_of(&id).join(name);
        assert_eq!(fs::read_to_string(seen("sobel.bitstream")).unwrap(), "1");
        assert_eq!(fs::read_to_string(seen("library/sobel.bitstream")).unwrap(), "2");
        let link = fs::read_link(seen("mm.bitstream")).unwrap();
        assert_eq!(link, Path::new("/run/fpga/node-bitstreams/mm.bitstream"));
        assert_eq!((mode(&layout.bitstreams_of(&id)), mode(&seen("library"))), (0o755, 0o755));

        // The store's file may go: the container keeps the bytes.
        fs::remove_file(layout.store().join("1")).unwrap();
        assert_eq!(fs::read_to_string(seen("sobel.bitstream")).unwrap(), "1");
        let files = [("sobel.bitstream".to_owned(), file("3"))];
        layout.lay_out_bitstreams(&id, &files.into(), None).unwrap();
        assert_eq!(fs::read_to_string(seen("sobel.bitstream")).unwrap(), "3");
        assert_eq!(children(&layout.bitstreams_of(&id)).unwrap().len(), 1);
        layout.remove_claim_folder(&id).unwrap();
        assert!(!layout.bitstreams_of(&id).exists());
    }
}
