-- Drains by the control file have a kind of their own: they end with the file, an operator's stay. The same meaning as in
-- postgres/. A constraint can't be changed in place: the table is made anew.

CREATE TABLE marks_anew (
    route TEXT NOT NULL,
    backend TEXT NOT NULL,
    kind TEXT NOT NULL,
    until_unix_ms INTEGER,
    reason TEXT NOT NULL,
    CONSTRAINT marks_backend_kind PRIMARY KEY (route, backend, kind),
    CONSTRAINT marks_route_known FOREIGN KEY (route) REFERENCES routes (name) ON DELETE CASCADE,
    CONSTRAINT marks_kind_known CHECK (kind IN ('drain', 'file_drain', 'ban', 'unhealthy'))
) STRICT, WITHOUT ROWID;

-- Until now the reason alone told them apart.
INSERT INTO marks_anew (route, backend, kind, until_unix_ms, reason)
SELECT
    route,
    backend,
    CASE WHEN kind = 'drain' AND reason LIKE '%the control file%' THEN 'file_drain' ELSE kind END,
    until_unix_ms,
    reason
FROM marks;

DROP TABLE marks;
ALTER TABLE marks_anew RENAME TO marks;
