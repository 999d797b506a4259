//! The crypto provider.

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, LazyLock};

/// The crypto provider, always passed explicitly: the default of the process could be another library's.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    Arc::clone(&PROVIDER)
}
