/** Credentials of HTTP tools at rest: sealed for the tool that they were given with, opened only for its requests. */
import * as z from 'zod';
import { fromBase64Url, toBase64Url, utf8 } from '../../shared/encoding.ts';

const IV_BYTES = 12;
const CredentialsSchema = z.record(z.string(), z.string());

export interface CredentialsOwner {
  tenant: string;
  tool: string;
}

export async function sealCredentials(
  key: CryptoKey,
  owner: CredentialsOwner,
  credentials: Record<string, string>,
): Promise<string> {
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
  const sealed = await crypto.subtle.encrypt(parameters(iv, owner), key, utf8(JSON.stringify(credentials)));
  return `${toBase64Url(iv)}.${toBase64Url(new Uint8Array(sealed))}`;
}

/** Throws for what was sealed for another tool, or under another key. */
export async function openCredentials(
  key: CryptoKey,
  owner: CredentialsOwner,
  text: string,
): Promise<Record<string, string>> {
  const [iv, sealed] = text.split('.').map((part) => fromBase64Url(part));
  if (iv === undefined || sealed === undefined) throw new Error('sealed credentials are damaged');
  const opened = await crypto.subtle.decrypt(parameters(iv, owner), key, sealed);
  return CredentialsSchema.parse(JSON.parse(new TextDecoder().decode(opened)));
}

function parameters(iv: Uint8Array<ArrayBuffer>, { tenant, tool }: CredentialsOwner): AesGcmParams {
  return { name: 'AES-GCM', iv, additionalData: utf8(JSON.stringify([tenant, tool])) };
}

interface AesGcmParams {
  name: 'AES-GCM';
  iv: Uint8Array<ArrayBuffer>;
  additionalData: Uint8Array<ArrayBuffer>;
}
