/** Where the shells of a session come from: a bash that has begun is forked for each. */
import type { Channel } from './channel.ts';
import { fail, type GuestResult, succeed } from './failure.ts';
import type { GuestLink } from './guest-link.ts';
import type { SpawnOptions } from './spawn.ts';

const LIBRARY_PATH = '/sandgate/shell.so';
/** Where bash itself is found: not on the session's PATH, which a command may have set to anything. */
const PROGRAM_PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const FORK_TIMEOUT_MS = 10_000;
const CONFIRM_TIMEOUT_MS = 10_000;
const MAX_TEMPLATES = 2;
const NOTHING = new Uint8Array(0);

export interface TemplateOptions {
  /** The interpreter, by default `bash` of the path. */
  readonly bash?: string;
  /** Where the library that is preloaded into bash lies in the sandbox. */
  readonly library?: string;
  /** Variables that choose the locale: its files are then read once, and not by each shell. */
  readonly locale?: readonly Uint8Array[];
}

interface WaitingShell {
  readonly channel: Channel;
  /** Whether what it was given to prepare for reached it. */
  readonly isPrepared: boolean;
}

type ControlSink = (bytes: Uint8Array) => void;

export class ShellTemplate {
  readonly #link: GuestLink;
  readonly #bash: string;
  readonly #library: string;
  readonly #locale: readonly Uint8Array[];
  #template: Promise<GuestResult<Channel>> | undefined;
  /** Whether this bash was never one that can be forked, and is not tried any more. */
  #isUseless = false;
  #hasForked = false;
  #disposed = false;

  constructor(link: GuestLink, { bash = 'bash', library = LIBRARY_PATH, locale = [] }: TemplateOptions) {
    this.#link = link;
    this.#bash = bash;
    this.#library = library;
    this.#locale = locale;
  }

  /** A shell that waits for its request, with its output muted. */
  async start(
    onControl: ControlSink,
    preparation: Uint8Array | undefined,
  ): Promise<GuestResult<WaitingShell>> {
    for (let templates = 0; templates < MAX_TEMPLATES && !this.#isUseless; templates++) {
      const template = await this.#take();
      if (!template.ok) return template;
      const channel = await this.#link.fork({
        template: template.value,
        preparation: preparation ?? NOTHING,
        onControl,
        timeoutMs: FORK_TIMEOUT_MS,
      });
      if (channel.ok) {
        this.#hasForked = true;
        return succeed({ channel: channel.value, isPrepared: preparation !== undefined });
      }
      if (!isTemplateLost(channel)) return channel;
      await this.#drop(template.value);
    }
    this.#isUseless = !this.#hasForked;
    const channel = await this.#spawnBash(':', { control: true, onControl });
    return channel.ok ? succeed({ channel: channel.value, isPrepared: false }) : channel;
  }

  /** One that goes on from a checkpoint. */
  adopt(template: Channel): void {
    this.#template = Promise.resolve(succeed(template));
    this.#hasForked = true;
  }

  /** Channel of the bash that is forked, once there is one. */
  async channelId(): Promise<number | null> {
    const template = await this.#template;
    return template?.ok === true && !template.value.hasExited ? template.value.id : null;
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
    const template = await this.#template;
    if (template?.ok === true) await template.value.release(CONFIRM_TIMEOUT_MS);
  }

  #take(): Promise<GuestResult<Channel>> {
    if (this.#disposed) return Promise.resolve(fail('channel_ended', 'the shell was disposed of'));
    this.#template ??= this.#spawnBash(this.#library, { isTemplate: true });
    return this.#template;
  }

  async #drop(template: Channel): Promise<void> {
    const current = await this.#template;
    if (current?.ok === true && current.value === template) this.#template = undefined;
    await template.release(CONFIRM_TIMEOUT_MS);
  }

  async #spawnBash(command: string, options: Partial<SpawnOptions>): Promise<GuestResult<Channel>> {
    const channel = await this.#link.spawn({
      argv: [this.#bash, '-c', command],
      cwd: '/',
      environment: [`LD_PRELOAD=${this.#library}`, PROGRAM_PATH, ...this.#locale],
      muted: true,
      ...options,
    });
    if (!channel.ok) this.#template = undefined;
    return channel;
  }
}

/** Gone, stopped, or not one that listens. */
function isTemplateLost({ failure }: GuestResult<Channel> & { readonly ok: false }): boolean {
  return failure.reason === 'timeout' || (failure.reason === 'spawn_failed' && failure.errno === 'EPIPE');
}
