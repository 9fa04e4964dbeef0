/** Writes a file whole or not at all, readable by its owner only. */
import { open, rename } from 'node:fs/promises';

export async function writePrivateFile(path: string, text: string): Promise<void> {
  const draft = `${path}.${process.pid}.new`;
  const file = await open(draft, 'w', 0o600);
  try {
    await file.chmod(0o600);
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
}
