/* What is said on the keeper's socket: each connection begins with one order of this size. */
#ifndef SANDGATE_STREAM_KEEPER_PROTOCOL_H
#define SANDGATE_STREAM_KEEPER_PROTOCOL_H

#define ORDER_BYTES 80
#define NAME_OFFSET 2
#define NAME_BYTES (ORDER_BYTES - NAME_OFFSET)

/* Input, output and error output of a program, as the agent has them. */
#define STREAMS 3
/* Where the messenger finds them. */
#define FIRST_STREAM 3

/* Streams come with it, and are kept under the name; answered by ACCEPTED. */
#define ORDER_KEEP 'k'
/* The connection is the stream of that index from now on. */
#define ORDER_JOIN 'j'
/* An agent is there for as long as the connection is; answered by the names, and an empty one. Whatever it says then is END. */
#define ORDER_AGENT 'a'

#define ACCEPTED 'y'

#endif
