// Numbers and times for people.

// A share in thousandths as per cent.
export function percent(share) {
  if (share > 0 && share < 100) return `${(share / 10).toFixed(1)} %`;
  return `${Math.round(share / 10)} %`;
}

// A short duration.
export function micros(us) {
  if (us < 1000) return `${us} µs`;
  if (us < 1000000) return `${(us / 1000).toFixed(us < 10000 ? 2 : 1)} ms`;
  return `${(us / 1000000).toFixed(2)} s`;
}

export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function count(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

// NAMESPACE/NAME in its parts.
export function parts(key) {
  const slash = key.indexOf("/");
  return { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

// A pod of a controller is called by what made it: `ReplicaSet/sobel-5d8f` is `sobel`.
export function workload(key, pod) {
  if (!pod?.owner) return parts(key).name;
  const [kind, ...name] = pod.owner.split("/");
  return kind === "ReplicaSet" ? name.join("/").replace(/-[a-z0-9]{5,10}$/, "") : name.join("/");
}
