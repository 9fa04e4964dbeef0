/** A session's network between the database, where its secrets are sealed, and the attach that carries them to the host. */
import { type Network, NetworkSchema, networkView } from '../../../../shared/network.ts';
import { openSecrets, sealSecrets } from '../../../secrets/sealed-secrets.ts';
import type { StoredNetwork } from '../rows/records.ts';

export interface NetworkOwner {
  tenant: string;
  sessionId: string;
}

export async function sealNetwork(
  key: CryptoKey,
  { tenant, sessionId }: NetworkOwner,
  network: Network | null,
): Promise<StoredNetwork | null> {
  if (network === null) return null;
  if (network.inject.length === 0) return { ...networkView(network), secrets: null };
  const byPlace = Object.fromEntries(network.inject.map(({ secret }, place) => [String(place), secret]));
  const secrets = await sealSecrets(key, { tenant, holder: sessionId }, byPlace);
  return { ...networkView(network), secrets };
}

export async function openNetwork(
  key: CryptoKey,
  { tenant, sessionId }: NetworkOwner,
  stored: StoredNetwork | null,
): Promise<Network | null> {
  if (stored === null) return null;
  const { allow, inject, secrets } = stored;
  const byPlace = secrets === null ? {} : await openSecrets(key, { tenant, holder: sessionId }, secrets);
  const opened = inject.map((header, place) => ({ ...header, secret: byPlace[String(place)] }));
  return NetworkSchema.parse({ allow, inject: opened });
}
