/**
 * A sandbox in which nothing is under way: its guest stands still, and how it stands is written down, so that it outlives its
 * agent. The first thing that is wanted of it takes that back.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import type { CarriedSandbox } from '../checkpoint/carried.ts';
import type { SandboxOwner } from './held-state.ts';

const SETTLE_TIMEOUT_MS = 2_000;
const STAND_STILL_TIMEOUT_MS = 5_000;
const GO_ON_TIMEOUT_MS = 20_000;

export interface RestParts {
  link: Pick<GuestLink, 'isBusy' | 'rest' | 'restOn' | 'goOn' | 'close'>;
  /** Settles when nothing of the host's own is under way in it; false where something else is, or nobody would keep it. */
  settled: () => Promise<boolean>;
  /** Only while the guest stands still. */
  carry: () => Promise<CarriedSandbox>;
  /** Throws where it cannot be written. */
  write: (owner: SandboxOwner, state: CarriedSandbox) => void;
  remove: () => void;
}

export class Rest {
  readonly #parts: RestParts;
  #owner: SandboxOwner | undefined;
  #hasCalls: () => boolean = () => false;
  #stands = false;
  #isWritten = false;
  /** What was begun in a former round is void. */
  #round = 0;

  constructor(parts: RestParts) {
    this.#parts = parts;
  }

  /** It rests already, as a former agent wrote it. */
  goOnResting(owner: SandboxOwner): void {
    this.#owner = owner;
    this.#stands = this.#isWritten = true;
    this.#parts.link.restOn(() => this.stir());
  }

  /** Whose it is from now on: without an owner it dies with its agent. */
  keepFor(owner: SandboxOwner): void {
    this.#owner = owner;
  }

  get isWritten(): boolean {
    return this.#isWritten;
  }

  /** Nothing is written while `hasCalls` says so. */
  unless(hasCalls: () => boolean): void {
    this.#hasCalls = hasCalls;
  }

  /** Gives what writes it down, if it may be: to be called in the turn in which it is frozen. */
  async begin(): Promise<(() => void) | undefined> {
    const { link, settled, carry, write } = this.#parts;
    const owner = this.#owner;
    if (owner === undefined || this.#hasCalls() || this.#stands) return undefined;
    this.#round += 1;
    const round = this.#round;
    const isSettled = await Promise.race([settled(), wait(SETTLE_TIMEOUT_MS, false, { ref: false })]);
    if (!isSettled || round !== this.#round || link.isBusy || this.#hasCalls()) return undefined;
    this.#stands = true;
    const stood = await link.rest(() => this.stir(), STAND_STILL_TIMEOUT_MS);
    if (round !== this.#round) return undefined;
    if (!stood.ok) {
      this.#stands = false;
      return undefined;
    }
    const state = await carry();
    if (round !== this.#round) return undefined;
    return () => {
      try {
        write(owner, state);
        this.#isWritten = true;
      } catch {
        // A disk that refuses it keeps nothing: the sandbox dies with its agent.
        this.#parts.remove();
      }
    };
  }

  /** Something is wanted of it: what was written goes before anything is sent. */
  stir(): void {
    this.#round += 1;
    if (!this.#stands) return;
    this.#stands = false;
    const { link } = this.#parts;
    if (!this.#takeBack()) {
      link.close();
      return;
    }
    void link.goOn(GO_ON_TIMEOUT_MS).then((goes) => {
      if (!goes.ok) link.close();
    });
  }

  /** False where the disk keeps it: the next agent would believe it, whatever has happened since. */
  #takeBack(): boolean {
    if (!this.#isWritten) return true;
    try {
      this.#parts.remove();
      this.#isWritten = false;
      return true;
    } catch {
      return false;
    }
  }
}
