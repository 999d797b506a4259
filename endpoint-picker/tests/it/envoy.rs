//! A real Envoy with the configuration that the chart installs asks the picker: bodies of 10 MB in every mode of the
//! filter, replicas that come, go and are killed, pickers that are killed, and clients that mean no good. `hack/envoy.sh`
//! brings Envoy.

mod bed;
mod replicas;
mod requests;
mod several_pickers;
mod traces;
