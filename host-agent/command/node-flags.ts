/**
 * How Node is started for the agent. Output passes through it in buffers outside the heap, and V8 collects the whole heap
 * each time that a heap's worth of them was allocated: with the small one that it begins with, twenty times a second under
 * a stream, which is more work than the stream itself. Up to this many megabytes nothing is collected but young objects.
 */
export const AGENT_NODE_FLAGS: readonly string[] = ['--initial-old-space-size=96'];
