#!/usr/bin/env bash
# Makes the database once, then is the server.
set -euo pipefail

as_postgres=(setpriv --reuid postgres --regid postgres --init-groups)

chown postgres: "$PGDATA" /run/postgresql
if [[ ! -s $PGDATA/PG_VERSION ]]; then
  printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
  chmod 644 /tmp/password
  "${as_postgres[@]}" initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth scram-sha-256 -D "$PGDATA"
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  "${as_postgres[@]}" postgres --single -j -D "$PGDATA" postgres <<<"CREATE DATABASE $POSTGRES_DB"
fi
exec "${as_postgres[@]}" postgres -D "$PGDATA" -c listen_addresses='*'
