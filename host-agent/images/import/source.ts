/** Where an image comes from, as the operator names it. Only a digest says which image is meant. */
import { ImageDigestSchema } from '../../../shared/ids.ts';
import { IMAGE_NAME_PATTERN } from '../image-file.ts';
import { ImageRefusal } from '../refusal.ts';

export type ImageSource = {
  digest: string;
  /** For the record: what was named, with its digest and without a tag. */
  text: string;
} & (
  | { kind: 'registry'; repository: string; isLoopback: boolean }
  | { kind: 'layout'; dir: string }
  | { kind: 'archive'; file: string }
);

const PART = '[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*';
const HOST =
  '(?:localhost|[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:)|\\[[0-9A-Fa-f:]+\\])(?::[0-9]{1,5})?';
const REPOSITORY = new RegExp(
  `^(?:(${HOST})/)?(${PART}(?:/${PART})*)(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$`,
);
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?$/;
const MAX_SOURCE_LENGTH = 4096;

/** `<registry>/<repository>@sha256:…`, `oci:<folder>@sha256:…` or `oci-archive:<file>@sha256:…`. */
export function parseImageSource(text: string): ImageSource {
  const at = text.lastIndexOf('@');
  const digest = text.slice(at + 1);
  if (at < 0 || text.length > MAX_SOURCE_LENGTH || !ImageDigestSchema.safeParse(digest).success) {
    throw new ImageRefusal(
      'an image is named by its digest, <name>@sha256:<64 hex digits>: a tag may mean another one tomorrow',
    );
  }
  const named = text.slice(0, at);
  const [, scheme, rest = ''] = /^(docker:\/\/|oci:|oci-archive:)(.*)$/s.exec(named) ?? [
    named,
    'docker://',
    named,
  ];
  if (scheme === 'oci:' && rest !== '') return { kind: 'layout', dir: rest, digest, text };
  if (scheme === 'oci-archive:' && rest !== '') return { kind: 'archive', file: rest, digest, text };
  const [, host, path] = REPOSITORY.exec(rest) ?? [];
  if (path === undefined)
    throw new ImageRefusal(`${JSON.stringify(named)} names no repository, folder or archive`);
  const repository = host === undefined ? path : `${host}/${path}`;
  const isLoopback = host !== undefined && LOOPBACK.test(host);
  return { kind: 'registry', repository, isLoopback, digest, text: `${repository}@${digest}` };
}

/** The last part of a repository, where that can be a name; a folder or a file has none. */
export function imageNameOf(source: ImageSource): string | undefined {
  if (source.kind !== 'registry') return undefined;
  const name = source.repository.slice(source.repository.lastIndexOf('/') + 1);
  return IMAGE_NAME_PATTERN.test(name) ? name : undefined;
}
