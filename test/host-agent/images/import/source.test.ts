import { describe, expect, test } from 'vitest';
import { imageNameOf, parseImageSource } from '../../../../host-agent/images/import/source.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;

describe('the source of an image', () => {
  test.each([
    ['alpine', 'alpine', false, 'alpine'],
    ['docker://docker.io/library/python', 'docker.io/library/python', false, 'python'],
    ['ghcr.io/team/my-tool:1.2', 'ghcr.io/team/my-tool', false, 'my-tool'],
    ['localhost:5000/a/b', 'localhost:5000/a/b', true, 'b'],
    ['127.0.0.1:5000/a', '127.0.0.1:5000/a', true, 'a'],
    ['[::1]:5000/a', '[::1]:5000/a', true, 'a'],
    ['127.0.0.1.example.com/a', '127.0.0.1.example.com/a', false, 'a'],
    ['quay.io/x/2048', 'quay.io/x/2048', false, undefined],
  ])('may be a repository: %s', (text, repository, isLoopback, name) => {
    const source = parseImageSource(`${text}@${DIGEST}`);
    expect(source).toEqual({
      kind: 'registry',
      repository,
      isLoopback,
      digest: DIGEST,
      text: `${repository}@${DIGEST}`,
    });
    expect(imageNameOf(source)).toBe(name);
  });

  test.each([
    [`oci:/srv/an @ folder@${DIGEST}`, { kind: 'layout', dir: '/srv/an @ folder' }],
    [`oci-archive:image.tar@${DIGEST}`, { kind: 'archive', file: 'image.tar' }],
  ])('may be %s', (text, expected) => {
    expect(parseImageSource(text)).toMatchObject({ ...expected, digest: DIGEST });
  });

  test.each([
    'alpine',
    'alpine:latest',
    'alpine@latest',
    'alpine@sha256:abc',
    `alpine@${DIGEST.toUpperCase()}`,
    '@',
    '',
  ])('is refused without a digest: %s', (text) => {
    expect(() => parseImageSource(text)).toThrow(/named by its digest/);
  });

  test.each([
    '--debug',
    'Upper/case',
    'a b',
    'oci:',
    'oci-archive:',
    '',
    'http://host/a',
    'a/../b',
    'host:port/a',
  ])('is refused where it names nothing that can be asked: %s', (text) => {
    expect(() => parseImageSource(`${text}@${DIGEST}`)).toThrow(/names no repository/);
  });
});
