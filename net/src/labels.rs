//! Values of metrics' labels: enums, so that there are never more series than somebody thought of, each value with its text.

/// Gives each value of an enum its text as a Prometheus label. The crate that uses it has `prometheus-client`.
///
/// ```ignore
/// #[derive(Debug, Clone, PartialEq, Eq, Hash)]
/// enum Outcome {
///     Taken,
///     Refused,
/// }
/// fpga_net::label_texts! {
///     Outcome { Taken => "taken", Refused => "refused" }
/// }
/// ```
#[macro_export]
macro_rules! label_texts {
    ($($label:ident { $($value:ident => $text:literal),+ $(,)? })+) => {$(
        impl ::prometheus_client::encoding::EncodeLabelValue for $label {
            fn encode(
                &self,
                encoder: &mut ::prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> ::std::fmt::Result {
                let text = match self { $(Self::$value => $text,)+ };
                ::prometheus_client::encoding::EncodeLabelValue::encode(&text, encoder)
            }
        }
    )+};
}
