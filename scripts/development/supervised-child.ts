/** A child process that is started again when it dies, until it is stopped. */
import { type ChildProcess, spawn } from 'node:child_process';
import { LogFile } from './log-file.ts';

const FIRST_RESTART_DELAY_MS = 100;
const MAX_RESTART_DELAY_MS = 5_000;
/** A child that lived this long starts again without the delay earlier deaths have earned. */
const HEALTHY_AFTER_MS = 5_000;
const ENDED_WELL = 'exit code 0';

export type ChildSpec = {
  name: string;
  args: string[];
  environment: NodeJS.ProcessEnv;
  /** Written to the child's standard input: secrets go here, not into the environment. */
  input: string;
  logPath: string;
  /** Sent when this process dies, however it dies. */
  parentDeathSignal: 'INT' | 'KILL';
  /** Sent by `stop`. */
  stopSignal: 'SIGTERM' | 'SIGINT';
  onMessage: (message: unknown) => void;
  onRestart: (reason: string) => void;
  /** For what may be left of a stopped child: `endedWell` is false where it did not live to put its things away. */
  onStopped?: (endedWell: boolean) => Promise<unknown>;
};

export class SupervisedChild {
  readonly #spec: ChildSpec;
  readonly #log: LogFile;
  #child: ChildProcess | undefined;
  #exited: Promise<string> = Promise.resolve('never started');
  #stopping = false;
  #restartDelayMs = FIRST_RESTART_DELAY_MS;
  #restartTimer: NodeJS.Timeout | undefined;
  #logStartBytes = 0;
  #startedAtMs = 0;

  constructor(spec: ChildSpec) {
    this.#spec = spec;
    this.#log = new LogFile(spec.logPath);
  }

  get name(): string {
    return this.#spec.name;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Wall-clock time at which the running child was started. */
  get startedAtMs(): number {
    return this.#startedAtMs;
  }

  start(): void {
    const { name, args, environment, input, parentDeathSignal } = this.#spec;
    this.#logStartBytes = this.#log.sizeBytes;
    this.#startedAtMs = Date.now();
    const startedAtMs = performance.now();
    // A process group of its own: Ctrl-C at the terminal reaches only this process, which stops the children in order.
    const child = spawn('setpriv', ['--pdeathsig', parentDeathSignal, '--', process.execPath, ...args], {
      detached: true,
      env: environment,
      stdio: ['pipe', this.#log.descriptor, this.#log.descriptor, 'ipc'],
    });
    this.#child = child;
    child.on('message', (message: unknown) => this.#spec.onMessage(message));
    child.stdin?.on('error', () => {});
    child.stdin?.end(input);
    this.#exited = new Promise((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('exit', (code, signal) =>
        resolve(signal === null ? `exit code ${code}` : `signal ${signal}`),
      );
    });
    void this.#exited.then((reason) => {
      if (this.#child === child) this.#child = undefined;
      if (this.#stopping) return;
      if (performance.now() - startedAtMs > HEALTHY_AFTER_MS) this.#restartDelayMs = FIRST_RESTART_DELAY_MS;
      const delayMs = this.#restartDelayMs;
      this.#restartDelayMs = Math.min(delayMs * 2, MAX_RESTART_DELAY_MS);
      this.#spec.onRestart(
        `${name} ended (${reason}), starting it again in ${delayMs} ms; log: ${this.#log.path}`,
      );
      this.#restartTimer = setTimeout(() => this.start(), delayMs);
    });
  }

  /** Settles when the running child ends, with the reason. */
  get exited(): Promise<string> {
    return this.#exited;
  }

  /** The last line of the running child's log. */
  lastLogLine(): string {
    return this.#log.lastLine(this.#logStartBytes);
  }

  /** SIGKILL, as a crash would be; the child is started again. */
  async crash(): Promise<void> {
    this.#child?.kill('SIGKILL');
    await this.#exited;
  }

  /** The stop signal, then SIGKILL after the grace; a second call changes nothing. */
  async stop(graceMs: number): Promise<void> {
    if (this.#stopping) return;
    this.#stopping = true;
    clearTimeout(this.#restartTimer);
    const child = this.#child;
    child?.kill(this.#spec.stopSignal);
    const timer = setTimeout(() => child?.kill('SIGKILL'), graceMs);
    const endedWell = child !== undefined && (await this.#exited) === ENDED_WELL;
    clearTimeout(timer);
    this.#log.close();
    await this.#spec.onStopped?.(endedWell);
  }
}
