/** What others may ask of the object of one tool source. */
import type { Outcome } from '../../../shared/errors.ts';
import type { JsonSchema } from '../../tools/definition.ts';
import type { EdgeOutcome, OnEdgeProgress } from '../../tools/edge-execution.ts';

/** A source is one of a tenant: the object is told whose it is, and checks its name against it. */
export interface SourceOwner {
  tenant: string;
  source: string;
}

export interface SourceCall {
  callId: string;
  remoteName: string;
  inputSchema: JsonSchema;
  arguments: Record<string, unknown>;
  timeoutMs: number;
}

export interface SourcePush {
  headers: { id: string; timestamp: string; signature: string };
  body: Uint8Array;
}

export interface SourcePort {
  /** It was made or replaced: what was known of it is forgotten, and its tools are asked for. */
  changed(owner: SourceOwner): Promise<Outcome<null>>;
  /** Resolves when its tools are as it says now, or it is known why they are not. */
  refresh(owner: SourceOwner): Promise<Outcome<null>>;
  /** A signed message of who publishes the manifest. */
  push(owner: SourceOwner, push: SourcePush): Promise<Outcome<null>>;
  /** `onProgress` is called as long as the call is under way. */
  call(owner: SourceOwner, call: SourceCall, onProgress?: OnEdgeProgress): Promise<EdgeOutcome>;
  /** Of a call that is under way; of any other it does nothing. */
  cancel(callId: string): Promise<void>;
  removed(owner: SourceOwner): Promise<Outcome<null>>;
}

export function sourceObjectName({ tenant, source }: SourceOwner): string {
  return `${tenant}:${source}`;
}
