//! The objects of the API server that functions are made of. No I/O.

#[cfg(test)]
mod tests;

mod ports;

use super::Key;
use crate::function::{
    FUNCTION_LABEL, Function, FunctionName, MAX_WAITING_ANNOTATION, PORT_ANNOTATION, Replica, is_label,
};
use fpga_core::bitstream::BitstreamId;
use fpga_core::names::BOARDS_ANNOTATION;
use fpga_core::requirement::{PodText, Requirement};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use ports::{Certainty, PortChoice, PortEntry};
use std::cmp::Reverse;
use std::collections::btree_map;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tracing::warn;

/// Label of an EndpointSlice: the name of its Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Most boards of a pod; further ones in its annotation are ignored.
const MOST_BOARDS: usize = 16;

/// The objects of the API server that functions are made of.
#[derive(Debug, Default)]
pub struct Catalog {
    services: HashMap<Key, ServiceEntry>,
    slices: HashMap<Key, SliceEntry>,
    pods: HashMap<Key, PodEntry>,
    /// The slices of each Service.
    of_service: HashMap<Key, BTreeSet<Key>>,
    /// The Services of each function.
    of_function: HashMap<FunctionName, BTreeSet<Key>>,
    /// The slices that have each pod.
    of_pod: HashMap<Key, BTreeSet<Key>>,
    changed: HashSet<FunctionName>,
    /// The function whose requests come by an InferencePool.
    pooled: Option<FunctionName>,
    /// The first target port of that InferencePool.
    pool_port: Option<u16>,
}

#[derive(Debug, PartialEq, Eq)]
struct ServiceEntry {
    function: FunctionName,
    bitstream: Option<BitstreamId>,
    max_waiting: Option<usize>,
    port: PortChoice,
    /// The Service's first family of addresses is IPv6.
    prefers_ipv6: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct SliceEntry {
    service: Key,
    ports: Vec<PortEntry>,
    endpoints: Vec<EndpointEntry>,
}

/// An endpoint that is ready.
#[derive(Debug, PartialEq, Eq)]
struct EndpointEntry {
    address: IpAddr,
    node: Option<Arc<str>>,
    /// The pod, and its UID.
    pod: Option<(Key, Arc<str>)>,
}

#[derive(Debug, PartialEq, Eq)]
struct PodEntry {
    uid: Arc<str>,
    boards: Vec<Arc<str>>,
    bitstream: Option<BitstreamId>,
    asks_for_board: bool,
    life: Life,
}

#[derive(Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// The pod was told to end.
    Ending,
}

impl Catalog {
    /// Knows nothing yet. The requests of `pooled` come by an InferencePool, whose port its pods are called at.
    #[must_use]
    pub fn new(pooled: Option<FunctionName>) -> Self {
        Self { pooled, ..Self::default() }
    }

    /// The functions that have changed since the last call.
    pub fn changed(&mut self) -> HashSet<FunctionName> {
        std::mem::take(&mut self.changed)
    }

    /// The function with its replicas; `None` if no Service is this function.
    #[must_use]
    pub fn function(&self, name: &FunctionName) -> Option<Function> {
        let services = self.of_function.get(name).filter(|services| !services.is_empty())?;
        let mut function = Function::default();
        let of_pool = self.pool_port.filter(|_| self.pooled.as_ref() == Some(name));
        let mut of_pods = None;
        let mut replicas = BTreeMap::new();
        for service in services {
            let entry = self.services.get(service)?;
            function.bitstream = function.bitstream.or_else(|| entry.bitstream.clone());
            function.max_waiting = function.max_waiting.or(entry.max_waiting);
            for (certainty, port, endpoint) in self.endpoints(service, entry, of_pool) {
                let pod = endpoint.pod.as_ref().and_then(|(key, uid)| {
                    // A pod of the same name may be another one.
                    self.pods.get(key).filter(|pod| pod.uid == *uid)
                });
                if pod.is_some_and(|pod| pod.life == Life::Ending) {
                    continue;
                }
                of_pods = of_pods.or_else(|| pod.and_then(|pod| pod.bitstream.clone()));
                let replica = Replica {
                    address: SocketAddr::new(endpoint.address, port),
                    hosts: endpoint.pod.iter().map(|_| endpoint.address).collect(),
                    pod: endpoint.pod.as_ref().map(|(_, uid)| Arc::clone(uid)),
                    node: endpoint.node.clone(),
                    boards: pod.map_or_else(Vec::new, |pod| pod.boards.clone()),
                    asks_for_board: endpoint.pod.is_none() || pod.is_some_and(|pod| pod.asks_for_board),
                };
                // The port that is known best, then the Service's first family.
                let is_second_family = endpoint.address.is_ipv6() != entry.prefers_ipv6;
                let place = (Reverse(certainty), is_second_family, replica.address);
                merge(&mut replicas, place, replica);
            }
        }
        function.bitstream = function.bitstream.or(of_pods);
        function.replicas = replicas.into_values().map(|(_, replica)| replica).collect();
        function.replicas.sort_by_key(|replica| replica.address);
        Some(function)
    }

    /// The endpoints of a Service, each with the port that takes requests.
    fn endpoints(
        &self,
        service: &Key,
        entry: &ServiceEntry,
        of_pool: Option<u16>,
    ) -> impl Iterator<Item = (Certainty, u16, &EndpointEntry)> {
        let slices = self.of_service.get(service).into_iter().flatten();
        let slices = slices.filter_map(|slice| self.slices.get(slice));
        slices.flat_map(move |slice| {
            let of_pool = of_pool.map(|port| (Certainty::Named, port));
            let port = of_pool.or_else(|| entry.port.of(&slice.ports));
            if let (None, Some(port), false) = (port, entry.port.annotation(), slice.endpoints.is_empty()) {
                let ports = &slice.ports;
                warn!(
                    namespace = service.0,
                    service = service.1,
                    port,
                    ?ports,
                    "The annotation {PORT_ANNOTATION} names no port of the Service: its pods get no requests"
                );
            }
            let endpoints =
                port.map(|(certainty, port)| slice.endpoints.iter().map(move |one| (certainty, port, one)));
            endpoints.into_iter().flatten()
        })
    }

    /// Takes the InferencePool.
    pub fn pool(&mut self, pool: &DynamicObject) {
        let port = pool.data.pointer("/spec/targetPorts/0/number").and_then(serde_json::Value::as_u64);
        self.set_pool_port(port.and_then(|port| u16::try_from(port).ok()));
    }

    /// Forgets the InferencePool.
    pub fn remove_pool(&mut self) {
        self.set_pool_port(None);
    }

    fn set_pool_port(&mut self, port: Option<u16>) {
        if self.pool_port != port {
            self.pool_port = port;
            self.changed.extend(self.pooled.clone());
        }
    }

    /// Takes a Service with the label of functions.
    pub fn service(&mut self, service: &Service) {
        let key = super::key(service);
        let meta = &service.metadata;
        let label = meta.labels.as_ref().and_then(|labels| labels.get(FUNCTION_LABEL));
        let name = label.filter(|name| !name.is_empty()).unwrap_or(&key.1);
        if !is_label(name) {
            warn!(namespace = key.0, service = key.1, name, "The Service's label is no name of a function");
            return self.remove_service(&key);
        }
        let spec = service.spec.as_ref();
        let families = spec.and_then(|spec| spec.ip_families.as_ref()?.first());
        let entry = ServiceEntry {
            function: FunctionName::new(&key.0, name),
            bitstream: bitstream(meta),
            max_waiting: annotation(meta, MAX_WAITING_ANNOTATION).and_then(|text| text.parse().ok()),
            port: PortChoice::new(
                annotation(meta, PORT_ANNOTATION),
                spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default(),
            ),
            prefers_ipv6: families.is_some_and(|first| first == "IPv6"),
        };
        if self.services.get(&key) == Some(&entry) {
            return;
        }
        self.remove_service(&key);
        self.changed.insert(entry.function.clone());
        self.of_function.entry(entry.function.clone()).or_default().insert(key.clone());
        self.services.insert(key, entry);
    }

    /// Forgets a Service.
    pub fn remove_service(&mut self, key: &Key) {
        if let Some(entry) = self.services.remove(key) {
            if let Some(services) = self.of_function.get_mut(&entry.function) {
                services.remove(key);
                if services.is_empty() {
                    self.of_function.remove(&entry.function);
                }
            }
            self.changed.insert(entry.function);
        }
    }

    /// Forgets the Services that are not among `keys`.
    pub fn retain_services(&mut self, keys: &HashSet<Key>) {
        let gone: Vec<Key> = self.services.keys().filter(|key| !keys.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_service(key));
    }

    /// Takes an EndpointSlice.
    pub fn slice(&mut self, slice: &EndpointSlice) {
        let key = super::key(slice);
        let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL));
        let Some(service) = service else { return self.remove_slice(&key) };
        let ports = slice.ports.iter().flatten().filter_map(PortEntry::new).collect();
        let endpoints = slice.endpoints.iter().flatten();
        let endpoints = endpoints.filter_map(|endpoint| entry(&key.0, endpoint)).collect();
        let new = SliceEntry { service: (key.0.clone(), service.clone()), ports, endpoints };
        if self.slices.get(&key) == Some(&new) {
            return;
        }
        self.remove_slice(&key);
        for (pod, _) in new.endpoints.iter().filter_map(|endpoint| endpoint.pod.as_ref()) {
            self.of_pod.entry(pod.clone()).or_default().insert(key.clone());
        }
        self.of_service.entry(new.service.clone()).or_default().insert(key.clone());
        self.touch(&new.service);
        self.slices.insert(key, new);
    }

    /// Forgets an EndpointSlice.
    pub fn remove_slice(&mut self, key: &Key) {
        let Some(entry) = self.slices.remove(key) else { return };
        if let Some(slices) = self.of_service.get_mut(&entry.service) {
            slices.remove(key);
            if slices.is_empty() {
                self.of_service.remove(&entry.service);
            }
        }
        for (pod, _) in entry.endpoints.iter().filter_map(|endpoint| endpoint.pod.as_ref()) {
            let Some(slices) = self.of_pod.get_mut(pod) else { continue };
            slices.remove(key);
            if slices.is_empty() {
                self.of_pod.remove(pod);
            }
        }
        self.touch(&entry.service);
    }

    /// Forgets the EndpointSlices that are not among `keys`.
    pub fn retain_slices(&mut self, keys: &HashSet<Key>) {
        let gone: Vec<Key> = self.slices.keys().filter(|key| !keys.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_slice(key));
    }

    /// Takes the metadata of a pod.
    pub fn pod(&mut self, pod: &ObjectMeta) {
        let key = (pod.namespace.clone().unwrap_or_default(), pod.name.clone().unwrap_or_default());
        let boards = boards(pod);
        let bitstream = bitstream(pod);
        let asks_for_board = asks_for_board(pod);
        let Some(uid) = pod.uid.as_deref().filter(|_| !boards.is_empty() || asks_for_board) else {
            // The pods of a cluster are many, and few have boards.
            return self.remove_pod(&key);
        };
        let life = if pod.deletion_timestamp.is_some() { Life::Ending } else { Life::Alive };
        let entry = PodEntry { uid: uid.into(), boards, bitstream, asks_for_board, life };
        if self.pods.get(&key) != Some(&entry) {
            self.touch_pod(&key);
            self.pods.insert(key, entry);
        }
    }

    /// Forgets a pod. Its endpoint is gone when its EndpointSlice says so, or at once if it was known.
    pub fn remove_pod(&mut self, key: &Key) {
        if self.pods.remove(key).is_some() {
            self.touch_pod(key);
        }
    }

    /// Forgets the pods that are not among `keys`.
    pub fn retain_pods(&mut self, keys: &HashSet<Key>) {
        let gone: Vec<Key> = self.pods.keys().filter(|key| !keys.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_pod(key));
    }

    fn touch_pod(&mut self, pod: &Key) {
        let slices = self.of_pod.get(pod).into_iter().flatten();
        let services: Vec<Key> =
            slices.filter_map(|slice| self.slices.get(slice)).map(|slice| slice.service.clone()).collect();
        services.iter().for_each(|service| self.touch(service));
    }

    fn touch(&mut self, service: &Key) {
        if let Some(entry) = self.services.get(service) {
            self.changed.insert(entry.function.clone());
        }
    }
}

/// Adds a replica, or its address to a replica of the same pod, which has the address with the least place.
fn merge<P: Ord>(
    replicas: &mut BTreeMap<Result<Arc<str>, SocketAddr>, (P, Replica)>,
    place: P,
    replica: Replica,
) {
    // A pod of two families of addresses has an endpoint in each of two slices, and may be in several Services.
    let same = replica.pod.clone().ok_or(replica.address);
    match replicas.entry(same) {
        btree_map::Entry::Vacant(entry) => {
            entry.insert((place, replica));
        }
        btree_map::Entry::Occupied(mut entry) => {
            let (best, known) = entry.get_mut();
            let mut hosts = std::mem::take(&mut known.hosts);
            hosts.extend(&replica.hosts);
            hosts.sort_unstable();
            hosts.dedup();
            if place < *best {
                (*best, *known) = (place, replica);
            }
            known.hosts = hosts;
        }
    }
}

/// The endpoint, if it takes requests.
fn entry(namespace: &str, endpoint: &Endpoint) -> Option<EndpointEntry> {
    // Absent means "unknown", which is to be taken for "ready".
    let is_ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
    let address = endpoint.addresses.first()?.parse().ok().filter(|_| is_ready)?;
    let pod = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"));
    let pod = pod.and_then(|pod| {
        let name = pod.name.clone()?;
        let namespace = pod.namespace.clone().unwrap_or_else(|| namespace.to_owned());
        Some(((namespace, name), Arc::from(pod.uid.as_deref()?)))
    });
    let node = endpoint.node_name.as_deref().map(Arc::from);
    Some(EndpointEntry { address, node, pod })
}

fn annotation<'m>(meta: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The boards that the annotation names, each once.
fn boards(pod: &ObjectMeta) -> Vec<Arc<str>> {
    let mut boards: Vec<Arc<str>> = Vec::new();
    let names = annotation(pod, BOARDS_ANNOTATION).unwrap_or_default().split(',').map(str::trim);
    for name in names.filter(|name| !name.is_empty()).take(MOST_BOARDS) {
        if !boards.iter().any(|board| **board == *name) {
            boards.push(name.into());
        }
    }
    boards
}

/// The first bitstream that the annotations name.
fn bitstream(meta: &ObjectMeta) -> Option<BitstreamId> {
    Requirement::bitstreams_of(pairs(meta.annotations.as_ref())).ok()?.into_iter().next()
}

/// Whether a pod asks for a board by its labels or annotations. Its resources are not watched.
fn asks_for_board(pod: &ObjectMeta) -> bool {
    let (labels, annotations) = (pairs(pod.labels.as_ref()), pairs(pod.annotations.as_ref()));
    let asked = Requirement::of_pod(PodText { labels, annotations, containers: &[] });
    !matches!(asked, Ok(None))
}

fn pairs(map: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = (&str, &str)> {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
}
