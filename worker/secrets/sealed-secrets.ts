/** Secrets at rest: sealed for the tool or session that they were given with, opened only for it. */
import * as z from 'zod';
import { fromBase64Url, toBase64Url, utf8 } from '../../shared/encoding.ts';

const IV_BYTES = 12;
const SecretsSchema = z.record(z.string(), z.string());

export interface SecretsOwner {
  tenant: string;
  /** Name of the tool, or id of the session. */
  holder: string;
}

export async function sealSecrets(
  key: CryptoKey,
  owner: SecretsOwner,
  secrets: Record<string, string>,
): Promise<string> {
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
  const sealed = await crypto.subtle.encrypt(parameters(iv, owner), key, utf8(JSON.stringify(secrets)));
  return `${toBase64Url(iv)}.${toBase64Url(new Uint8Array(sealed))}`;
}

/** Throws for what was sealed for another holder, or under another key. */
export async function openSecrets(
  key: CryptoKey,
  owner: SecretsOwner,
  text: string,
): Promise<Record<string, string>> {
  const [iv, sealed] = text.split('.').map((part) => fromBase64Url(part));
  if (iv === undefined || sealed === undefined) throw new Error('sealed secrets are damaged');
  const opened = await crypto.subtle.decrypt(parameters(iv, owner), key, sealed);
  return SecretsSchema.parse(JSON.parse(new TextDecoder().decode(opened)));
}

function parameters(iv: Uint8Array<ArrayBuffer>, { tenant, holder }: SecretsOwner): AesGcmParams {
  return { name: 'AES-GCM', iv, additionalData: utf8(JSON.stringify([tenant, holder])) };
}

interface AesGcmParams {
  name: 'AES-GCM';
  iv: Uint8Array<ArrayBuffer>;
  additionalData: Uint8Array<ArrayBuffer>;
}
