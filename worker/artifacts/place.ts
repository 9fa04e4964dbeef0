/** Where the bytes of an artifact are, and under which key. */
import { contentKey } from '../content/content-key.ts';
import type { SealedPlace } from '../content/sealed-object.ts';

export function artifactObjectKey(tenant: string, artifactId: string): string {
  return `artifacts/${tenant}/${artifactId}`;
}

export async function artifactPlace(
  root: CryptoKey,
  { tenant, artifactId }: { tenant: string; artifactId: string },
): Promise<SealedPlace> {
  return {
    objectKey: artifactObjectKey(tenant, artifactId),
    key: await contentKey(root, { kind: 'artifact', tenant, id: artifactId }),
  };
}
