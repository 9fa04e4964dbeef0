/** The two operator calls a stack makes of its own edge. */
import * as z from 'zod';
import { SetupFailure } from '../../host-agent/setup/failure.ts';
import { EnrollmentTokenSchema, OperatorHostSchema } from '../../shared/host-api.ts';

const REQUEST_TIMEOUT_MS = 10_000;
const HostListSchema = z.object({ hosts: z.array(OperatorHostSchema) });
export type OperatorHost = z.infer<typeof OperatorHostSchema>;

export class OperatorClient {
  readonly url: string;
  readonly #token: string;

  constructor(url: string, token: string) {
    this.url = url;
    this.#token = token;
  }

  async createEnrollmentToken(): Promise<string> {
    const body = await this.#request('POST', '/v1/enrollment-tokens', {});
    return EnrollmentTokenSchema.parse(body).enrollment_token;
  }

  async hosts(): Promise<OperatorHost[]> {
    return HostListSchema.parse(await this.#request('GET', '/v1/hosts')).hosts;
  }

  async #request(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': 'application/json' },
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok)
      throw new SetupFailure(`${method} ${path} answered ${response.status}: ${text.slice(0, 300)}`);
    return JSON.parse(text);
  }
}
