/** What others may ask of a host object. */
import type { Outcome } from '../../../shared/errors.ts';

/** A grant that goes to the host over its control link, and its payload. */
export interface ControlCommand {
  tenant: string;
  sessionId: string;
  grant: string;
  payload: Uint8Array;
}

export interface HostStatus {
  connected: boolean;
  /** The present control link is this old; null without one. */
  connectedForMs: number | null;
}

export interface HostPort {
  /** Sends an `attach`; the object then tells the session of a refusal, or of the host's death. */
  attach(command: ControlCommand): Promise<Outcome<null>>;
  /** Sends a `destroy` for a session whose own link is down. */
  destroy(command: ControlCommand): Promise<Outcome<null>>;
  /** The session needs to hear nothing more of this host. */
  forget(session: { tenant: string; sessionId: string }): Promise<void>;
  /** A session did not take what this host signed. Too many of these, and the host gets no new sessions. */
  receiptRefused(): Promise<void>;
  /** Whether it is to take no new sandboxes. Told again whenever it links. */
  drain(draining: boolean): Promise<void>;
  status(): Promise<HostStatus>;
  /** For good: its links end, its sessions lose it, and nothing that it presents is taken any more. */
  revoke(host: { hostId: string; pool: string }): Promise<Outcome<null>>;
  /** When it was revoked; null for a host that was not. */
  revokedAtMs(): Promise<Outcome<number | null>>;
}
