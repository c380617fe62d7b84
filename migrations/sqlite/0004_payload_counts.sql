-- What replicas have counted of payload handling, by route, so that it outlives the control plane. The same table with the same
-- meaning as in postgres/. `state` is `policy::payload_count::PayloadTotals` as JSON.

CREATE TABLE payload_counts (
    route TEXT NOT NULL,
    state TEXT NOT NULL,
    updated_unix_ms INTEGER NOT NULL,
    CONSTRAINT payload_counts_one_per_route PRIMARY KEY (route),
    CONSTRAINT payload_counts_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
