-- The state of one installation. Times are Unix milliseconds. The same tables with the same meaning as in sqlite/.

CREATE TABLE installation (
    id BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    fingerprint_key BYTEA,
    CONSTRAINT installation_id PRIMARY KEY (id),
    CONSTRAINT installation_single CHECK (id = 1),
    CONSTRAINT installation_fingerprint_key_length CHECK (length(fingerprint_key) = 32)
);

INSERT INTO installation (id, epoch) VALUES (1, 0);

CREATE TABLE routes (
    name TEXT NOT NULL,
    document TEXT NOT NULL,
    CONSTRAINT routes_name PRIMARY KEY (name)
);

CREATE TABLE bindings (
    route TEXT NOT NULL,
    fingerprint BYTEA NOT NULL,
    backend TEXT NOT NULL,
    dp_rank BIGINT,
    created_unix_ms BIGINT NOT NULL,
    last_used_unix_ms BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    moves BIGINT NOT NULL,
    CONSTRAINT bindings_session PRIMARY KEY (route, fingerprint),
    CONSTRAINT bindings_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE,
    CONSTRAINT bindings_fingerprint_length CHECK (length(fingerprint) = 16)
);

CREATE TABLE leases (
    lease BIGINT NOT NULL,
    route TEXT NOT NULL,
    backend TEXT NOT NULL,
    replica TEXT NOT NULL,
    fingerprint BYTEA,
    granted_unix_ms BIGINT NOT NULL,
    CONSTRAINT leases_lease PRIMARY KEY (lease),
    CONSTRAINT leases_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE,
    CONSTRAINT leases_fingerprint_length CHECK (length(fingerprint) = 16)
);

CREATE TABLE marks (
    route TEXT NOT NULL,
    backend TEXT NOT NULL,
    kind TEXT NOT NULL,
    until_unix_ms BIGINT,
    reason TEXT NOT NULL,
    CONSTRAINT marks_backend_kind PRIMARY KEY (route, backend, kind),
    CONSTRAINT marks_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE,
    CONSTRAINT marks_kind_known CHECK (kind IN ('drain', 'ban', 'unhealthy'))
);

CREATE TABLE keys (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    sha256 BYTEA NOT NULL,
    created_unix_ms BIGINT NOT NULL,
    CONSTRAINT keys_id PRIMARY KEY (id),
    CONSTRAINT keys_name UNIQUE (name),
    CONSTRAINT keys_sha256 UNIQUE (sha256),
    CONSTRAINT keys_sha256_length CHECK (length(sha256) = 32)
);

CREATE TABLE replicas (
    replica TEXT NOT NULL,
    version TEXT NOT NULL,
    listen TEXT NOT NULL,
    last_seen_unix_ms BIGINT NOT NULL,
    CONSTRAINT replicas_replica PRIMARY KEY (replica)
);
