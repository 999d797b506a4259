//! Which function a request is for: by its path (`/function/NAME` or `/function/NAME.NAMESPACE`, as OpenFaaS has it),
//! by its host (`NAME.NAMESPACE.DOMAIN`), or a fixed one behind a gateway that has an `InferencePool` per function.

use crate::function::{FunctionName, is_label};
use std::sync::Arc;

/// Beginning of the paths that name a function.
const PATH_PREFIX: &str = "/function/";

/// How requests name functions.
#[derive(Debug, Clone)]
pub struct Routing {
    /// The function of all requests.
    pub fixed: Option<FunctionName>,
    /// The namespace of functions that are named without one.
    pub namespace: Arc<str>,
    /// The domain below which hosts name functions; `None` if hosts name none.
    pub domain: Option<Arc<str>>,
}

impl Routing {
    /// The function of a request with this `:path` and `:authority`; `None` if it names none.
    #[must_use]
    pub fn function(&self, path: &str, authority: &str) -> Option<FunctionName> {
        if let Some(fixed) = &self.fixed {
            return Some(fixed.clone());
        }
        self.by_path(path).or_else(|| self.by_host(authority))
    }

    fn by_path(&self, path: &str) -> Option<FunctionName> {
        let rest = path.strip_prefix(PATH_PREFIX)?;
        self.named(rest.split(['/', '?', '#']).next()?)
    }

    fn by_host(&self, authority: &str) -> Option<FunctionName> {
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let name = host.strip_suffix(&**self.domain.as_ref()?)?.strip_suffix('.')?;
        self.named(name)
    }

    fn named(&self, text: &str) -> Option<FunctionName> {
        let (name, namespace) = text.split_once('.').unwrap_or((text, &self.namespace));
        (is_label(name) && is_label(namespace)).then(|| FunctionName::new(namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routing() -> Routing {
        Routing { fixed: None, namespace: "default".into(), domain: Some("fn.example".into()) }
    }

    #[test]
    fn path_and_host_name_functions() {
        let found = |path: &str, authority: &str| {
            routing().function(path, authority).map(|function| function.to_string()).unwrap_or_default()
        };
        assert_eq!(found("/function/sobel", "any"), "default/sobel");
        assert_eq!(found("/function/sobel/more?x=1", "any"), "default/sobel");
        assert_eq!(found("/function/sobel.team-a?x=/b", "any"), "team-a/sobel");
        assert_eq!(found("/x", "sobel.team-a.fn.example:8080"), "team-a/sobel");
        assert_eq!(found("/x", "Sobel.fn.example."), "default/sobel");
        for (path, authority) in [
            ("/", "any"),
            ("/function/", "any"),
            ("/functions/sobel", "any"),
            ("/function/a.b.c", "any"),
            ("/function/%00", "any"),
            ("/function/../admin", "any"),
            ("/x", "fn.example"),
            ("/x", "sobelfn.example"),
            ("", ""),
        ] {
            assert_eq!(found(path, authority), "", "{path} {authority}");
        }
    }

    #[test]
    fn a_fixed_function_gets_all_requests() {
        let fixed = Routing { fixed: Some(FunctionName::new("a", "b")), ..routing() };
        assert_eq!(fixed.function("/function/other", "").unwrap().to_string(), "a/b");
    }
}
