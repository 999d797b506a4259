use super::*;

fn tenant(number: usize) -> Tenant {
    Tenant::new(&format!("tenant-{number}"))
}

/// Begins sessions of this tenant, each on a connection of its own, until one is refused.
fn all_that_are_given(connections: &Connections, tenant: &Tenant) -> Vec<(Open, OnConnection)> {
    let begun = (0..=MAX_CONNECTIONS).map_while(|_| {
        let open = connections.open(&Peer::User(0))?;
        let session = open.begin(tenant).ok()?;
        Some((open, session))
    });
    begun.collect()
}

#[test]
fn the_peer_with_most_connections_without_a_session_makes_room_for_others_at_once() {
    const MOST: usize = 8;
    let connections = Connections::new(MOST);
    let (greedy, other) = (Peer::User(1), Peer::User(2));
    let start = Instant::now();
    let held: Vec<_> = (0..MOST).map(|_| connections.open_at(&greedy, start).unwrap()).collect();
    assert!(connections.open_at(&greedy, start).is_none(), "all of its connections are new");
    let first = connections.open_at(&other, start).unwrap();
    let _session = first.begin(&tenant(0)).unwrap();
    let second = connections.open_at(&other, start).unwrap();
    assert_eq!(second.begin(&tenant(0)).err(), None);
    assert_eq!(held[0].begin(&tenant(1)).err(), Some(NoSession::Closing));
    drop((held, first, second));
    assert_eq!(*connections.running.borrow(), 0);
}

#[test]
fn the_connection_that_has_been_without_a_session_for_longest_makes_room_whatever_it_did_before() {
    let connections = Connections::new(MAX_CONNECTIONS);
    let start = Instant::now();
    let open: Vec<_> =
        (0..MAX_CONNECTIONS).map(|_| connections.open_at(&Peer::User(0), start).unwrap()).collect();
    assert!(connections.open_at(&Peer::User(0), start).is_none(), "all are new");
    let lasting = open[0].begin(&tenant(0)).unwrap();
    drop(open[1].begin(&tenant(0)).unwrap());
    let _more = connections.open_at(&Peer::User(0), start).unwrap();
    assert_eq!(open[1].begin(&tenant(0)).err(), Some(NoSession::Closing));
    let _old = connections.open_at(&Peer::User(0), start + HANDSHAKE_GRACE).unwrap();
    assert_eq!(open[2].begin(&tenant(0)).err(), Some(NoSession::Closing));
    assert!(open[3].begin(&tenant(0)).is_ok());
    drop(lasting);
}

#[test]
fn many_tenants_with_all_connections_that_they_get_leave_one_for_the_next_tenant() {
    const TENANTS: usize = 64;
    let connections = Connections::new(MAX_CONNECTIONS);
    let held: Vec<_> = (0..TENANTS).map(|number| all_that_are_given(&connections, &tenant(number))).collect();
    assert_eq!(held[0].len(), (MAX_CONNECTIONS - KEPT_FOR_NEW_TENANTS) / 2, "a tenant that is alone");
    assert!(held.iter().all(|held| !held.is_empty()));
    let next = connections.open(&Peer::User(0)).unwrap();
    let session = next.begin(&tenant(TENANTS)).unwrap();
    assert!(next.begin(&tenant(TENANTS)).is_ok(), "a further session on the same connection");
    let refused = connections.open(&Peer::User(0)).unwrap();
    assert!(matches!(refused.begin(&tenant(0)), Err(NoSession::TooMany(_))));
    drop((held, session));
    assert!(refused.begin(&tenant(0)).is_ok());
}

#[test]
fn sessions_that_begin_and_end_at_once_hold_no_place() {
    const MOST: usize = 8;
    let connections = Connections::new(MOST);
    let hostile: Vec<_> = all_that_are_given(&connections, &tenant(0));
    let (open, sessions): (Vec<_>, Vec<_>) = hostile.into_iter().unzip();
    drop(sessions);
    assert_eq!(connections.table.lock().entries.len(), MOST, "their memory is that of new connections");
    for open in &open {
        drop(open.begin(&tenant(0)));
    }
    let other = connections.open(&Peer::User(0)).unwrap();
    assert!(other.begin(&tenant(1)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_idle_from_the_end_of_its_last_session() {
    const TIMEOUT: Duration = Duration::from_secs(10);
    let connections = Connections::new(MAX_CONNECTIONS);
    let open = connections.open(&Peer::User(0)).unwrap();
    let session = open.begin(&tenant(0)).unwrap();
    let idle = tokio::time::timeout(10 * TIMEOUT, open.is_idle_for(TIMEOUT));
    assert!(idle.await.is_err(), "it has a session");
    drop(session);
    open.is_idle_for(TIMEOUT).await;
}
