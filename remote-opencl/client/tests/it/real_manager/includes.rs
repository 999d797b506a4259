//! Sources that include files of the program's own machine (`-I`), to which the manager has no access.

use super::{Setup, start, start_in};
use fpga_client::cl::MEM_COPY_HOST_PTR;
use fpga_client::{ArgValue, Buffer, ClError, Initial, Kernel, Operation, Program};
use fpga_test_kit::until;
use std::sync::Arc;

const SOURCE: &str = "#include \"sum.h\"\n#include <deep/three.h>\n
    kernel void add(global int *x) { x[0] += SUM + THREE; }";

/// A folder of headers that include each other; `one` is the value of the macro in one of them.
fn headers(one: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("inc/sum.h", "#include \"deep/one.h\"\n#define SUM (ONE + TWO)\n");
    write("inc/deep/one.h", &format!("#include \"../../beside/two.h\"\n#define ONE {one}\n"));
    write("beside/two.h", "#define TWO 20\n");
    write("other/deep/three.h", "#define THREE 300\n");
    folder
}

fn options(folder: &tempfile::TempDir) -> String {
    let root = folder.path().display();
    format!("-w -I {root}/inc -I\"{root}/other\"")
}

/// The number that the program's kernel adds.
fn adds(setup: &Setup, program: &Arc<Program>) -> u32 {
    let buffer = Buffer::new(&setup.context, MEM_COPY_HOST_PTR, 4, Initial::Copy(&[0; 4])).unwrap();
    let kernel = Kernel::new(program, "add").unwrap();
    kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&buffer))).unwrap();
    let range = Operation::NdRange { kernel: &kernel, offset: &[], global: &[1], local: &[] };
    setup.queue.enqueue(range, &[]).unwrap();
    u32::from_le_bytes(setup.read(&buffer).try_into().unwrap())
}

fn program(setup: &Setup, source: &str) -> Arc<Program> {
    Program::with_source(&setup.context, source.as_bytes().to_vec()).unwrap()
}

const WAYS: [&[&str]; 3] = [
    &["--confine-builds", "required"],
    &["--confine-builds", "required", "--isolate", "process"],
    &["--confine-builds", "required", "--reconfiguration", "full", "--slots", "1"],
];

#[test]
fn a_source_includes_what_the_programs_folders_have_and_nothing_of_the_managers() {
    for way in WAYS {
        let setup = Setup::of(start(way));
        let folder = headers(1);
        let first = program(&setup, SOURCE);
        first.build(&[], &options(&folder)).unwrap();
        assert_eq!(adds(&setup, &first), 321, "{way:?}");
        assert_eq!(first.build_info(&setup.device).unwrap().options, options(&folder));

        // The text and the options are the same, but the headers differ, so the two programs must not be confused.
        std::fs::write(
            folder.path().join("inc/deep/one.h"),
            "#include \"../../beside/two.h\"\n#define ONE 9\n",
        )
        .unwrap();
        let second = program(&setup, SOURCE);
        second.build(&[], &options(&folder)).unwrap();
        assert_eq!(adds(&setup, &second), 329, "{way:?}");
        // A whole board was reconfigured meanwhile, so this program is built again.
        assert_eq!(adds(&setup, &first), 321, "{way:?}");

        let header = program(&setup, "#define HEADER (ONE)\n#include \"deep/one.h\"\n");
        let apart =
            program(&setup, "#include \"embedded.h\"\nkernel void add(global int *x) { x[0] += HEADER; }");
        apart.compile(&[], &options(&folder), &[("embedded.h".to_owned(), header)]).unwrap();
        let linked = Program::to_link(&setup.context, &[]).unwrap();
        linked.link("", &[apart]).0.unwrap();
        assert_eq!(adds(&setup, &linked), 9, "{way:?}");

        // A file that the client's folders lack isn't found, even if the manager has one at that path.
        let file = program(&setup, "#include \"passwd\"\nkernel void add(global int *x) { }");
        assert_eq!(file.build(&[], "-I /nonexistent").unwrap_err(), ClError::BUILD_PROGRAM_FAILURE);
        let header = folder.path().join("inc/broken.h");
        std::fs::write(&header, "#error it is broken\n").unwrap();
        let broken = program(&setup, "#include \"broken.h\"\nkernel void add(global int *x) { }");
        assert_eq!(broken.build(&[], &options(&folder)).unwrap_err(), ClError::BUILD_PROGRAM_FAILURE);
        let log = broken.build_info(&setup.device).unwrap().log;
        let named = format!("{}:1", header.display());
        assert!(log.contains(&named) && !log.contains("/includes/"), "as the program knows its file: {log}");
    }
}

#[test]
fn what_was_laid_out_for_builds_is_gone_with_them() {
    let temporary = tempfile::tempdir().unwrap();
    let manager =
        start_in(&[("TMPDIR", temporary.path().to_str().unwrap())], &["--confine-builds", "required"]);
    let setup = Setup::of(manager);
    let folder = headers(1);
    program(&setup, SOURCE).build(&[], &options(&folder)).unwrap();
    let laid = || {
        let own =
            std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path().join("includes"));
        own.filter_map(|folder| std::fs::read_dir(folder).ok()).map(Iterator::count).sum::<usize>()
    };
    assert!(temporary.path().read_dir().unwrap().count() > 0, "it has its folder there");
    until("the files are gone", || laid() == 0);
}
