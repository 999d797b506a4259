//! What kubectl does with the same files and variables.

use super::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with kubeconfigs, and variables that name some of them.
struct Bed {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap().to_owned();
        Self { folder, variables: vec![("HOME", home)] }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a kubeconfig with the context, cluster and user `name`.
    fn write(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": format!("https://{name}.example:6443")}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [{"name": name, "user": {}}],
        });
        change(&mut content);
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content.to_string()).unwrap();
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    fn load(&self, path: Option<&str>, context: Option<&str>) -> Result<Config, KubeConfigError> {
        let variables = |name: &str| {
            let found = self.variables.iter().rfind(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let path = path.map(|path| self.folder.path().join(path));
        load_with(&variables, path.as_deref(), context)
    }

    /// The server that is found.
    fn server(&self, path: Option<&str>, context: Option<&str>) -> String {
        self.load(path, context).unwrap().cluster_url.to_string()
    }

    fn error(&self, path: Option<&str>, context: Option<&str>) -> String {
        let error = self.load(path, context).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    }
}

#[test]
fn of_a_list_of_files_missing_ones_are_skipped_and_earlier_ones_win() {
    let mut bed = Bed::new();
    bed.write("one", |_| ());
    bed.write("two", |content| content["clusters"][0]["name"] = json!("one"));
    bed.write(".kube/config", |_| ());
    assert!(bed.server(None, None).starts_with("https://.kube/config"), "the file of the home folder");
    let list = [bed.path("missing"), String::new(), bed.path("one"), bed.path("two")].join(":");
    bed.set("KUBECONFIG", &list);
    assert_eq!(bed.server(None, None), "https://one.example:6443/");
    // The context of the second file names a cluster of the first one.
    let error = bed.error(None, Some("two"));
    assert!(error.contains("names the cluster \"two\", which"), "{error}");
    bed.write("three", |_| ());
    assert_eq!(bed.server(Some("three"), None), "https://three.example:6443/");
}

#[test]
fn errors_name_the_file_the_context_and_what_there_is() {
    let mut bed = Bed::new();
    let error = bed.error(None, None);
    assert!(error.contains(&bed.path(".kube/config")) && error.contains("no pod of a cluster"), "{error}");
    assert!(matches!(bed.load(None, None), Err(KubeConfigError::Nowhere(_))));
    let error = bed.error(Some("missing"), None);
    assert!(error.contains(&bed.path("missing")) && error.contains("No such file"), "{error}");

    bed.write("good", |_| ());
    let error = bed.error(Some("good"), Some("other"));
    assert!(error.contains("has no context \"other\"; write --context with one of: good"), "{error}");
    bed.write("without", |content| content["current-context"] = json!(""));
    let error = bed.error(Some("without"), None);
    assert!(error.contains("has no current context; write --context with one of: without"), "{error}");

    // A broken file of the list is not passed over.
    std::fs::write(bed.path("broken"), "clusters: {").unwrap();
    bed.set("KUBECONFIG", &[bed.path("good"), bed.path("broken")].join(":"));
    let error = bed.error(None, None);
    assert!(error.contains(&bed.path("broken")), "{error}");
    // Also in a pod.
    bed.set("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    bed.set("KUBERNETES_SERVICE_PORT", "443");
    assert_eq!(bed.error(None, None), error);
    bed.set("KUBECONFIG", &bed.path("missing"));
    assert!(matches!(bed.load(None, None), Err(KubeConfigError::Pod(_))));
    assert!(matches!(bed.load(Some("missing"), None), Err(KubeConfigError::File { .. })));
}

#[test]
fn a_server_needs_no_scheme_and_bad_clusters_say_what_is_wrong() {
    let bed = Bed::new();
    let cluster = |cluster: Value| {
        bed.write("c", |content| content["clusters"][0]["cluster"] = cluster);
        bed.load(Some("c"), None)
    };
    let authority = rcgen::generate_simple_self_signed(["k8s.example".to_owned()]).unwrap().cert.pem();
    let file = bed.path("ca.pem");
    std::fs::write(&file, &authority).unwrap();
    for (given, url) in [
        (json!({"server": "10.0.0.1:6443", "certificate-authority": "ca.pem"}), "https://10.0.0.1:6443/"),
        (json!({"server": "10.0.0.1:6443", "insecure-skip-tls-verify": true}), "https://10.0.0.1:6443/"),
        (json!({"server": "10.0.0.1:8080"}), "http://10.0.0.1:8080/"),
        (
            json!({"server": "https://rancher.example/k8s/clusters/c-1"}),
            "https://rancher.example/k8s/clusters/c-1",
        ),
    ] {
        let config = cluster(given.clone()).unwrap();
        assert_eq!(config.cluster_url.to_string(), url);
        assert_eq!(config.root_cert.is_some(), given["certificate-authority"].is_string());
    }
    std::fs::write(bed.path("empty.pem"), "no certificate").unwrap();
    for (given, reason) in [
        (json!({}), "it has no server"),
        (json!({"server": "ftp://k8s.example"}), "no address of http or https"),
        (json!({"server": "https://k8s example"}), "is no address"),
        (json!({"server": "https://k8s.example", "certificate-authority": "missing.pem"}), "missing.pem"),
        (
            json!({"server": "https://k8s.example", "certificate-authority": "empty.pem"}),
            "no certificate in PEM",
        ),
        (json!({"server": "https://k8s.example", "proxy-url": "ftp://proxy"}), "proxy-url of the cluster c"),
    ] {
        let error = cluster(given).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_context_without_user_or_namespace_is_fine() {
    let bed = Bed::new();
    for context in [
        json!({"cluster": "c"}),
        json!({"cluster": "c", "user": "nobody", "namespace": ""}),
        json!({"cluster": "c", "user": "", "namespace": "default"}),
    ] {
        bed.write("c", |content| content["contexts"][0]["context"] = context);
        assert_eq!(bed.load(Some("c"), None).unwrap().default_namespace, "default");
    }
    bed.write("c", |content| content["contexts"][0]["context"]["namespace"] = json!("shop"));
    assert_eq!(bed.load(Some("c"), None).unwrap().default_namespace, "shop");
}

#[test]
fn the_proxy_of_the_cluster_comes_before_that_of_the_environment_and_has_no_exceptions() {
    let mut bed = Bed::new();
    bed.write("c", |_| ());
    bed.write("own", |content| {
        content["clusters"][0]["cluster"]["proxy-url"] = json!("socks5://own.example");
    });
    let proxy =
        |bed: &Bed, file| bed.load(Some(file), None).unwrap().proxy_url.map(|proxy| proxy.to_string());
    assert_eq!(proxy(&bed, "c"), None);
    bed.set("HTTPS_PROXY", "proxy.example:3128");
    assert_eq!(proxy(&bed, "c").unwrap(), "http://proxy.example:3128/");
    // What kubectl takes, also with empty entries.
    for list in ["c.example", ".example,", "other,,*", "c.example:6443"] {
        bed.set("NO_PROXY", list);
        assert_eq!(proxy(&bed, "c"), None, "{list}");
        assert_eq!(proxy(&bed, "own").unwrap(), "socks5://own.example:1080/");
    }
    bed.set("NO_PROXY", "c.example:443");
    assert_eq!(proxy(&bed, "c").unwrap(), "http://proxy.example:3128/");
    bed.set("HTTPS_PROXY", "ftp://proxy.example");
    let error = bed.error(Some("c"), None);
    assert!(error.contains("HTTPS_PROXY names no proxy"), "{error}");
}

#[test]
fn a_plugin_gets_the_cluster_if_it_wants_it_and_a_token_file_outdoes_a_token() {
    let bed = Bed::new();
    bed.write("c", |content| {
        content["users"][0]["user"] = json!({
            "token": "old", "tokenFile": "token",
            "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "provideClusterInfo": true},
        });
    });
    let user = bed.load(Some("c"), None).unwrap().auth_info;
    assert!(user.token.is_none());
    assert_eq!(user.token_file.unwrap(), bed.path("token"));
    let exec = user.exec.unwrap();
    assert_eq!(exec.cluster.unwrap().server.unwrap(), "https://c.example:6443");
    assert_eq!(Path::new(&exec.command.unwrap()), bed.folder.path().join("./login"));
}
