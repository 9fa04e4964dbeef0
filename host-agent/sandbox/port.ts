/** What the rest of the agent knows of sandboxes. `RunscSandboxes` implements it for real, a fake does for tests. */
import type { CallAnswer } from '../../shared/code-mode.ts';
import type { Outcome } from '../../shared/errors.ts';
import type { ProgramError, RichResult, StreamName } from '../../shared/execution.ts';
import type { TerminalStatus } from '../../shared/lifecycle.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import type { ShellStanding } from '../../shared/shell-standing.ts';
import type { SnapshotWorkspace } from '../../shared/snapshot.ts';
import type { ToolName } from '../../shared/tool.ts';
import type { SandboxNetwork } from '../egress/sandbox-egress.ts';
import type { CarriedSandbox } from './checkpoint/carried.ts';
import type { SandboxFiles } from './files/port.ts';
import type { SandboxOwner } from './held/held-state.ts';
import type { SandboxPrograms } from './programs/port.ts';

export interface SandboxConfig {
  sandboxId: string;
  imageDigest: string;
  limits: ResourceLimits;
  environment: Record<string, string>;
  /** The way out; without it there is none. */
  network?: SandboxNetwork | null;
}

export interface SandboxRuntimeFacts {
  runscVersion: string;
  runscPlatform: string;
  images: { name: string; digest: string }[];
  /** Sandboxes that may live at once. */
  capacity: number;
  /** Digest of what the host lays into each sandbox, where that has one. */
  guestSha256?: string | undefined;
}

export interface Sandboxes {
  facts: SandboxRuntimeFacts;
  /** Called when `facts.images` has become another list. */
  onImagesChange?(listener: () => void): void;
  /**
   * Kills and removes everything a former agent left (processes, cgroups, folders, mounts), but for what is at rest and may be
   * taken from now on. Call before ready.
   */
  reconcile(): Promise<{ removed: string[] }>;
  /** Fails with image_refused, host_full, limits_exceeded, egress_refused or sandbox_failed. */
  start(config: SandboxConfig): Promise<Outcome<Sandbox>>;
  /**
   * Makes a sandbox that goes on from a checkpoint. Fails as `start` does, and with snapshot_mismatch or restore_failed.
   */
  restore?(config: SandboxConfig, from: RestoreRequest): Promise<Outcome<RestoredSandbox>>;
  /** What a former agent left of the session, at rest as it was; each is given once. */
  takeHeld?(session: { sessionId: string; tenant: string; epoch: number }): HeldForSession | undefined;
  /** Ends what it left and nobody has taken. */
  endHeld?(): Promise<void>;
  /** Destroys all sandboxes. */
  stop(): Promise<void>;
  /** As `stop`, but leaves those at rest to a successor. */
  leave?(): Promise<void>;
}

export interface HeldForSession {
  owner: SandboxOwner;
  sandbox: Sandbox;
}

export interface RestoreRequest {
  /** What gVisor wrote, and what the host knew beside it. */
  imageDir: string;
  state: CarriedSandbox;
  /** What the guest reads as its generation. */
  generation: number;
  /** Whether it is one of several that go on from the checkpoint: then what is random in it is made anew. */
  isCopy: boolean;
  /** Where the output of a call goes that ran at the checkpoint. */
  sinkOf: (tool: ToolName) => OutputSink;
  /** Of a program: what becomes of its calls. */
  programOf?: ((tool: ToolName) => ProgramListener | undefined) | undefined;
  /** Whether a call that ran at the checkpoint has no place here: it has ended when the sandbox is there. */
  endsCall?: (tool: ToolName) => boolean;
}

export interface RestoredSandbox {
  sandbox: Sandbox;
  /** The calls that ran at the checkpoint and go on; of each tool one at most. */
  calls: RestoredCall[];
  /** Until this is called the sandbox stands still, and its way out is shut. */
  goOn: () => void;
}

export interface RestoredCall {
  tool: ToolName;
  execution: RunningExecution;
}

export interface Sandbox {
  id: string;
  /** The caller serialises: one execution of a tool at a time, and those of different tools at once. */
  execute(call: ToolCall, sink: OutputSink): RunningExecution;
  /** Beside executions, as many at once as the caller lets. */
  files: SandboxFiles;
  /** What outlives calls, beside executions. */
  programs: SandboxPrograms;
  /** Whose it is: from now on it outlives its agent where nothing is under way in it. */
  keepFor?(owner: SandboxOwner): void;
  /** At once, if nothing is under way in it. False where it would not outlive its agent. */
  comeToRest?(): Promise<boolean>;
  /** Stops every process of the guest until the returned function is called, whatever runs in it. */
  standStill?(): () => void;
  /** Stops every process of the sandbox where it stands, until `resume`. Settles when none of them runs. */
  pause(): Promise<Outcome<null>>;
  resume(): void;
  /**
   * Writes a checkpoint into an empty folder; from then on the sandbox stands still. Where it fails (suspend_failed) the
   * sandbox goes on as it was. The workspace, where it is wished for, is copied right before that.
   */
  checkpoint?(imageDir: string, workspace?: WorkspaceWish): Promise<Outcome<Checkpoint>>;
  /** Resolves once, when the sandbox is gone. */
  lost: Promise<{ reason: LostReason }>;
  /** Idempotent; returns when list, cgroup and folder are gone. */
  destroy(): Promise<void>;
}

/** The workspace as a tar archive beside a checkpoint. */
export interface WorkspaceWish {
  /** Where the archive is to lie; nothing does yet. */
  path: string;
  maxBytes: number;
}

/** A sandbox that stands still, and whose checkpoint is in its folder. One of the two ends that. */
export interface Checkpoint {
  readonly state: CarriedSandbox;
  /** What became of the copy that was wished for. */
  readonly workspace?: SnapshotWorkspace | undefined;
  /** It goes on where it was. */
  goOn(): Promise<void>;
  /** It has moved: it is removed, and what ran in it ends here without having ended. */
  end(): Promise<void>;
}

export type LostReason = 'oom' | 'crashed' | 'destroyed';

export interface ToolCall {
  executionId: string;
  tool: ToolName;
  /** Parsed by the tool's shared schema inside. */
  arguments: unknown;
  timeoutMs: number;
  /** Of a program: its calls, and what there is to say of its clock. */
  program?: ProgramListener;
  /** Whether `writeStdin` may come. Where it is false the program finds its input at its end. Default: true. */
  stdin?: boolean;
}

export interface ProgramCall {
  call: number;
  name: string;
  /** JSON, if the guest is honest. */
  arguments: string;
}

/** What a program does beside its output. */
export interface ProgramEvents {
  onCall(call: ProgramCall): void;
  /** All that it does is wait; `rests`: for tools alone, so that it may stand still until one answers. */
  onWaiting(rests: boolean): void;
}

/** The same as the rest of the agent hears it: `leftMs` is what the clock of the program stands at. */
export interface ProgramListener {
  onCall(call: ProgramCall): void;
  onWaiting(leftMs: number): void;
  onContinued(leftMs: number): void;
}

/** Settles when the answer is on its way into the guest; false where no such call waits for one. */
export type AnswerCall = (answer: CallAnswer) => Promise<boolean>;

/** Resolves when the sink takes more: until then the guest's credit is not renewed, so the program blocks. */
export type OutputSink = (stream: StreamName, bytes: Uint8Array) => Promise<void>;

export interface RunningExecution {
  writeStdin(bytes: Uint8Array, eof: boolean): Promise<Outcome<null>>;
  /** SIGINT to python's kernel (variables are kept) or to the whole tree of a shell call; SIGKILL after 2 s. */
  interrupt(): void;
  answer: AnswerCall;
  /** How long its clock stood still, as it does on pause and while a program waits: no part of its timeout or its duration. */
  readonly pausedMs: number;
  /** Never rejects and always settles: the timeout is enforced here, by a monotonic clock. */
  finished: Promise<ToolOutcome>;
}

export interface ToolOutcome {
  status: TerminalStatus;
  exitCode: number | null;
  signal: string | null;
  error: ProgramError | null;
  value: string | null;
  /** Null unless the file tool ran. */
  structured: unknown;
  results: RichResult[];
  /** Variables, the working directory or exported variables of former calls are gone. */
  stateLost: boolean;
  /** Of the session's shell: how it stands, where the edge was not told so before. */
  shell?: ShellStanding | undefined;
  usage: { cpuMs: number; peakMemoryBytes: number; egressBytes: number };
}
