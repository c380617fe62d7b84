-- A toggle that is set for a time uncovers what was set until undone: `standing`, its value as text, or null for nothing.
-- The same meaning as in sqlite/.

ALTER TABLE toggles ADD COLUMN standing TEXT;
