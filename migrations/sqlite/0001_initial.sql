-- The state of one installation. Times are Unix milliseconds. The same tables with the same meaning as in postgres/.

CREATE TABLE installation (
    id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    fingerprint_key BLOB,
    CONSTRAINT installation_id PRIMARY KEY (id),
    CONSTRAINT installation_single CHECK (id = 1),
    CONSTRAINT installation_fingerprint_key_length CHECK (length(fingerprint_key) = 32)
) STRICT;

INSERT INTO installation (id, epoch) VALUES (1, 0);

CREATE TABLE routes (
    name TEXT NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT routes_name PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;

CREATE TABLE bindings (
    route TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    backend TEXT NOT NULL,
    dp_rank INTEGER,
    created_unix_ms INTEGER NOT NULL,
    last_used_unix_ms INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    moves INTEGER NOT NULL,
    CONSTRAINT bindings_session PRIMARY KEY (route, fingerprint),
    CONSTRAINT bindings_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE,
    CONSTRAINT bindings_fingerprint_length CHECK (length(fingerprint) = 16)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    lease INTEGER NOT NULL,
    route TEXT NOT NULL,
    backend TEXT NOT NULL,
    replica TEXT NOT NULL,
    fingerprint BLOB,
    granted_unix_ms INTEGER NOT NULL,
    CONSTRAINT leases_lease PRIMARY KEY (lease),
    CONSTRAINT leases_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE,
    CONSTRAINT leases_fingerprint_length CHECK (length(fingerprint) = 16)
) STRICT;

CREATE TABLE marks (
    route TEXT NOT NULL,
    backend TEXT NOT NULL,
    kind TEXT NOT NULL,
    until_unix_ms INTEGER,
    reason TEXT NOT NULL,
    CONSTRAINT marks_backend_kind PRIMARY KEY (route, backend, kind),
    CONSTRAINT marks_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE,
    CONSTRAINT marks_kind_known CHECK (kind IN ('drain', 'ban', 'unhealthy'))
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    sha256 BLOB NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    CONSTRAINT keys_id PRIMARY KEY (id),
    CONSTRAINT keys_name UNIQUE (name),
    CONSTRAINT keys_sha256 UNIQUE (sha256),
    CONSTRAINT keys_sha256_length CHECK (length(sha256) = 32)
) STRICT;

CREATE TABLE replicas (
    replica TEXT NOT NULL,
    version TEXT NOT NULL,
    listen TEXT NOT NULL,
    last_seen_unix_ms INTEGER NOT NULL,
    CONSTRAINT replicas_replica PRIMARY KEY (replica)
) STRICT, WITHOUT ROWID;
