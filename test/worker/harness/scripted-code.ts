/** A host whose code says how it ends. */
import type { Script } from '../../fixtures/host-double/host-double.ts';

/**
 * `ok …` succeeds, `slow` runs into its deadline, `oom` and `crashed` end so with the state of the session. What waits until
 * it is let go: `hold`, which is interrupted then, `lost`, whose end nobody saw, and `held …`, which fails. Everything else
 * fails with itself as the message, but for what stands behind `#`, which only the traceback has.
 */
export class ScriptedCode {
  /** In the order in which the host was given them. */
  readonly ran: string[] = [];
  #release: () => void = () => undefined;

  readonly script: Script = async (execution) => {
    execution.started();
    const code = String(execution.arguments.code);
    this.ran.push(code);
    if (code.startsWith('ok')) return execution.finish();
    if (code === 'slow') return execution.finish({ status: 'timeout' });
    if (/^(hold|held|lost)\b/.test(code)) await this.#held();
    if (code === 'hold') return execution.finish({ status: 'interrupted' });
    if (code === 'oom' || code === 'crashed') {
      return execution.finish({ status: code, exit_code: null, signal: 'SIGKILL', state_lost: true });
    }
    if (code === 'lost') {
      const lost = { exit_code: null, reason: 'host_restarted', state_lost: true };
      return execution.finish({ status: 'unknown', ...lost });
    }
    const [message = '', secret = ''] = code.split('#');
    const error = {
      name: 'RuntimeError',
      message,
      traceback: `Traceback\nRuntimeError: ${message}${secret}\n`,
    };
    return execution.finish({ status: 'failed', exit_code: 1, error });
  };

  release(): void {
    this.#release();
  }

  #held(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#release = resolve;
    return promise;
  }
}

/** An answer of a model with code in it. */
export function fenced(code: string): string {
  return `Try this:\n\`\`\`python\n${code}\n\`\`\``;
}
