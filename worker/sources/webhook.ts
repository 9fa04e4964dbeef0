/** The address at which who publishes the manifest of a source says that it changed. */
import { toBase64Url, utf8 } from '../../shared/encoding.ts';
import { constantTimeEqual } from '../../shared/ids.ts';

const TAG_BYTES = 16;

/** Names a source in an address, so that only an address of this edge wakes an object. */
export async function webhookHandle(tagKey: CryptoKey, tenant: string, source: string): Promise<string> {
  return `${tenant}.${source}.${await tagOf(tagKey, tenant, source)}`;
}

export async function ownerOfHandle(
  tagKey: CryptoKey,
  handle: string,
): Promise<{ tenant: string; source: string } | undefined> {
  // A tenant's name may have dots, the other parts have none.
  const match = /^(.{1,64})\.([a-z0-9_-]{1,32})\.([A-Za-z0-9_-]{22})$/.exec(handle);
  const [, tenant, source, tag] = match ?? [];
  if (tenant === undefined || source === undefined || tag === undefined) return undefined;
  return constantTimeEqual(tag, await tagOf(tagKey, tenant, source)) ? { tenant, source } : undefined;
}

async function tagOf(tagKey: CryptoKey, tenant: string, source: string): Promise<string> {
  const mac = await crypto.subtle.sign('HMAC', tagKey, utf8(`source-webhook\n${tenant}\n${source}`));
  return toBase64Url(new Uint8Array(mac).subarray(0, TAG_BYTES));
}
