/*
 * SHA-256 of the OpenSSL that Node holds, over a state that lies in a buffer of the caller: so it can be written down in the
 * middle of a stream and gone on with elsewhere, which Node's own Hash cannot. The state is OpenSSL's SHA256_CTX.
 *
 * The declarations are those of Node-API version 8 and of OpenSSL's sha.h, both of which keep their binary interface: no headers
 * are needed where this is compiled.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct napi_env_ *napi_env;
typedef struct napi_value_ *napi_value;
typedef struct napi_callback_info_ *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);

extern int napi_get_cb_info(napi_env, napi_callback_info, size_t *argc, napi_value *argv, napi_value *self, void **data);
extern int napi_get_typedarray_info(napi_env, napi_value, int *type, size_t *length, void **data, napi_value *buffer,
                                    size_t *offset);
extern int napi_create_function(napi_env, const char *name, size_t length, napi_callback, void *data, napi_value *result);
extern int napi_set_named_property(napi_env, napi_value object, const char *name, napi_value value);
extern int napi_throw_type_error(napi_env, const char *code, const char *message);

enum { NAPI_VERSION = 8, NAPI_UINT8_ARRAY = 1, DIGEST_BYTES = 32 };

typedef struct {
    uint32_t h[8];
    uint32_t low_bits, high_bits;
    uint32_t data[16];
    unsigned int waiting, digest_bytes;
} sha256_state;

extern int SHA256_Init(sha256_state *);
extern int SHA256_Update(sha256_state *, const void *, size_t);
extern int SHA256_Final(unsigned char *, sha256_state *);

typedef struct {
    uint8_t *bytes;
    size_t length;
} byte_array;

/* The first `count` arguments, each a Uint8Array, the first of them a state. */
static bool take(napi_env env, napi_callback_info info, byte_array *arrays, size_t count)
{
    napi_value values[2];
    size_t given = count;
    if (napi_get_cb_info(env, info, &given, values, NULL, NULL) != 0 || given < count) return false;
    for (size_t at = 0; at < count; at++) {
        int type;
        void *data;
        if (napi_get_typedarray_info(env, values[at], &type, &arrays[at].length, &data, NULL, NULL) != 0) return false;
        if (type != NAPI_UINT8_ARRAY) return false;
        arrays[at].bytes = data;
    }
    return arrays[0].length == sizeof(sha256_state);
}

static napi_value refuse(napi_env env)
{
    napi_throw_type_error(env, NULL, "a state of SHA-256 and bytes were expected");
    return NULL;
}

static napi_value begin(napi_env env, napi_callback_info info)
{
    byte_array state[1];
    sha256_state aligned;
    if (!take(env, info, state, 1)) return refuse(env);
    SHA256_Init(&aligned);
    memcpy(state->bytes, &aligned, sizeof aligned);
    return NULL;
}

static napi_value update(napi_env env, napi_callback_info info)
{
    byte_array arrays[2];
    sha256_state aligned;
    if (!take(env, info, arrays, 2)) return refuse(env);
    memcpy(&aligned, arrays[0].bytes, sizeof aligned);
    SHA256_Update(&aligned, arrays[1].bytes, arrays[1].length);
    memcpy(arrays[0].bytes, &aligned, sizeof aligned);
    return NULL;
}

/* Leaves the state as it is. */
static napi_value finish(napi_env env, napi_callback_info info)
{
    byte_array arrays[2];
    sha256_state aligned;
    if (!take(env, info, arrays, 2) || arrays[1].length != DIGEST_BYTES) return refuse(env);
    memcpy(&aligned, arrays[0].bytes, sizeof aligned);
    SHA256_Final(arrays[1].bytes, &aligned);
    return NULL;
}

static void add(napi_env env, napi_value exports, const char *name, napi_callback callback)
{
    napi_value function;
    if (napi_create_function(env, name, strlen(name), callback, NULL, &function) == 0)
        napi_set_named_property(env, exports, name, function);
}

__attribute__((visibility("default"))) int32_t node_api_module_get_api_version_v1(void)
{
    return NAPI_VERSION;
}

__attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env, napi_value exports)
{
    add(env, exports, "begin", begin);
    add(env, exports, "update", update);
    add(env, exports, "finish", finish);
    return exports;
}
