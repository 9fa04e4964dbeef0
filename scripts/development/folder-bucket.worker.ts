/**
 * The bucket of snapshots of a local stack: a Worker of its own, whose objects are files of a folder. The simulated R2 takes
 * ten times as much of its one thread for each MiB that is put. What of R2 the gateway uses of this bucket is here, and nothing else.
 */
import { WorkerEntrypoint } from 'cloudflare:workers';

interface Env {
  /** workerd itself serves the folder. */
  FOLDER: Fetcher;
}

interface StoredObject {
  key: string;
  size: number;
}

interface Entry {
  name: string;
  type: string;
}

export class FolderBucket extends WorkerEntrypoint<Env> {
  async put(
    key: string,
    bytes: Uint8Array<ArrayBuffer>,
    { onlyIf }: { onlyIf?: unknown } = {},
  ): Promise<{ key: string } | null> {
    // The one condition that is asked for: that there is none yet.
    if (onlyIf !== undefined && (await this.#sizeOf(key)) !== undefined) return null;
    await this.#ask('PUT', key, bytes);
    return { key };
  }

  async get(key: string): Promise<{ body: ReadableStream } | null> {
    const { body } = await this.#ask('GET', key);
    return body === null ? null : { body };
  }

  async delete(keys: string[]): Promise<void> {
    for (const key of keys) await this.#ask('DELETE', key);
  }

  /** All of a folder at once. */
  async list({ prefix }: { prefix: string }): Promise<{ objects: StoredObject[]; truncated: false }> {
    const objects: StoredObject[] = [];
    for (const { name, type } of await this.#entriesOf(prefix)) {
      if (type === 'directory') objects.push(...(await this.list({ prefix: `${prefix}${name}/` })).objects);
      const size = type === 'file' ? await this.#sizeOf(prefix + name) : undefined;
      if (size !== undefined) objects.push({ key: prefix + name, size });
    }
    return { objects, truncated: false };
  }

  async #entriesOf(folder: string): Promise<Entry[]> {
    const { body } = await this.#ask('GET', folder);
    return body === null ? [] : new Response(body).json<Entry[]>();
  }

  async #sizeOf(key: string): Promise<number | undefined> {
    const { found, size } = await this.#ask('HEAD', key);
    return found ? size : undefined;
  }

  async #ask(
    method: 'GET' | 'HEAD' | 'PUT' | 'DELETE',
    path: string,
    body?: Uint8Array<ArrayBuffer>,
  ): Promise<{ found: boolean; size: number; body: ReadableStream | null }> {
    const answer = await this.env.FOLDER.fetch(`http://folder/${path}`, {
      method,
      ...(body === undefined ? {} : { body }),
    });
    if (answer.status === 404) return { found: false, size: 0, body: null };
    if (!answer.ok) throw new Error(`${method}: the folder answered with ${answer.status}`);
    return { found: true, size: Number(answer.headers.get('Content-Length')), body: answer.body };
  }
}

/** It has no door of its own. */
export default {
  fetch: () => new Response(null, { status: 404 }),
};
