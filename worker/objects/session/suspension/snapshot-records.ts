/** The snapshots of this session, as the index of its tenant keeps them. */
import { failure, type Outcome } from '../../../../shared/errors.ts';
import type { SequencedUp } from '../../../../shared/frames.ts';
import type { ShellStanding } from '../../../../shared/shell-standing.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { NewSnapshot, SnapshotFacts } from '../../snapshots/port.ts';
import type { SessionRow } from '../rows/session-row.ts';
import { openNetwork, sealNetwork } from '../sandbox/stored-network.ts';

/** What a host says of a snapshot that it has stored. */
export type Suspended = Extract<SequencedUp, { type: 'suspended' }>;

export class SnapshotRecords {
  readonly #row: SessionRow;
  readonly #env: Env;
  readonly #configuration: Configuration;

  constructor({ row, env, configuration }: { row: SessionRow; env: Env; configuration: Configuration }) {
    this.#row = row;
    this.#env = env;
    this.#configuration = configuration;
  }

  async begin(snapshot: NewSnapshot): Promise<Outcome<null>> {
    try {
      return await this.#index().begin(snapshot);
    } catch (error: unknown) {
      logWarning('snapshot_not_begun', { detail: messageOf(error) });
      return notRecorded();
    }
  }

  async complete(snapshot: SnapshotFacts): Promise<void> {
    await this.#index().complete(snapshot);
  }

  /** Nothing needs it any more. Never rejects: the index asks by itself for what it was not told. */
  async release(snapshotId: string): Promise<void> {
    const { sessionId } = this.#row.record.facts;
    await this.#index()
      .release({ sessionId, snapshotId })
      .catch((error: unknown) => logWarning('snapshot_not_released', { detail: messageOf(error) }));
  }

  /** What a session that is made of this snapshot needs to know. */
  async factsOf(
    frame: Pick<Suspended, 'snapshot_id' | 'manifest_sha256' | 'bytes' | 'stored_bytes' | 'workspace'> &
      SnapshotFacts['requirements'],
    shell: ShellStanding | null,
  ): Promise<SnapshotFacts> {
    const { facts, generation } = this.#row.record;
    const { secretsKey } = this.#configuration;
    const { tenant } = facts;
    const network = await openNetwork(secretsKey, facts, facts.network);
    return {
      snapshotId: frame.snapshot_id,
      manifestSha256: frame.manifest_sha256,
      sessionId: facts.sessionId,
      parentSnapshotId: facts.fromSnapshot?.snapshotId ?? null,
      image: facts.image,
      imageDigest: facts.imageDigest,
      pool: facts.pool,
      limits: facts.limits,
      environment: facts.environment,
      network: await sealNetwork(secretsKey, { tenant, sessionId: frame.snapshot_id }, network),
      requirements: requirementsOf(frame),
      generation,
      bytes: frame.bytes,
      storedBytes: frame.stored_bytes,
      shell,
      ...(frame.workspace === undefined ? {} : { workspace: frame.workspace }),
    };
  }

  #index() {
    return this.#env.SNAPSHOT_INDEX.getByName(this.#row.record.facts.tenant);
  }
}

export function notRecorded() {
  return failure('storage_unavailable', 'the snapshot could not be recorded', { retry_after_s: 2 });
}

export function requirementsOf(from: SnapshotFacts['requirements']): SnapshotFacts['requirements'] {
  const { image, runsc_version, runsc_platform, cpu_features_sha256, guest_sha256 } = from;
  return { image, runsc_version, runsc_platform, cpu_features_sha256, guest_sha256 };
}
