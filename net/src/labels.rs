//! Values of metric labels as enums, each value with its text: the number of series is fixed by the code.

/// Implements `EncodeLabelValue` for enums, with a text for each value. The calling crate needs `prometheus-client`.
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
