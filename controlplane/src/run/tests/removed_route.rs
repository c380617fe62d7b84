//! A route that is removed and comes back, seen by those who end their leases meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use super::followed::Place;
use super::*;

#[tokio::test]
async fn a_route_that_goes_and_comes_is_never_nowhere() {
    let still = Place::sqlite().start().await;
    still.apply(&["127.0.0.1:9"]).await;
    let (is_done, fleet) = (Arc::new(AtomicBool::new(false)), Arc::clone(&still.fleet));
    let until = Arc::clone(&is_done);
    let looks = tokio::task::spawn_blocking(move || {
        let mut looks = 0_u64;
        while !until.load(Ordering::Relaxed) {
            assert!(fleet.all_pools().find("default").is_some(), "a release would be passed over");
            looks += 1;
        }
        looks
    });
    for _ in 0..100 {
        still.fleet.remove_route("default").await.unwrap();
        still.apply(&["127.0.0.1:9"]).await;
    }
    is_done.store(true, Ordering::Relaxed);
    assert!(looks.await.unwrap() > 100);
}
