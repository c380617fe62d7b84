-- Drains by the control file have a kind of their own: they end with the file, an operator's stay. The same meaning as in
-- sqlite/.

ALTER TABLE marks DROP CONSTRAINT marks_kind_known;
ALTER TABLE marks ADD CONSTRAINT marks_kind_known CHECK (kind IN ('drain', 'file_drain', 'ban', 'unhealthy'));

-- Until now the reason alone told them apart.
UPDATE marks SET kind = 'file_drain' WHERE kind = 'drain' AND reason LIKE '%the control file%';
