#!/bin/sh
# Ties workerd's life to the gateway process: whatever kills the one ends the other.
exec setpriv --pdeathsig KILL -- "$SANDGATE_WORKERD" "$@"
