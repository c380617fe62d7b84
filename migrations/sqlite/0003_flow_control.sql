-- Flow control of pools, so that a restart goes on where it was, and what operators set at run time. The same tables with
-- the same meaning as in postgres/. `model` is empty for a pool of all models, and for a toggle of the whole route.

CREATE TABLE flows (
    route TEXT NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    updated_unix_ms INTEGER NOT NULL,
    CONSTRAINT flows_pool PRIMARY KEY (route, model),
    CONSTRAINT flows_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE toggles (
    route TEXT NOT NULL,
    name TEXT NOT NULL,
    model TEXT NOT NULL,
    value TEXT NOT NULL,
    until_unix_ms INTEGER,
    CONSTRAINT toggles_name_model PRIMARY KEY (route, name, model),
    CONSTRAINT toggles_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
