"""Arrow C data interface: exports columns to Arrow libraries without importing one.

Owns: ArrowSchema, ArrowArray and ArrowArrayStream structures and the capsules around them (the
"Arrow PyCapsule interface"). The caller describes the columns with

schema node   ``(format, name, is_nullable, metadata | None, (child schema nodes...), dictionary)``
array node    ``(length, null_count, (buffer | None, ...), (child array nodes...), dictionary)``

where a buffer is any contiguous object with the buffer protocol, and ``dictionary`` the node of the
values that a column of indices refers to; None, or left out, for other columns. An array node may
also be an ``arrow_array`` capsule made by another library; its content is moved into place. A
library's schema is read into a node, because the schema of a stream may be asked for repeatedly.

Ownership: every structure holds its own buffer views in ``private_data``, because a consumer may
move a child out and release it alone. No bytes are copied. A view is released by the release
callback, which the consumer may call from any thread, with or without the GIL, long after the
exporting object is freed. During the interpreter's shutdown no Python object can be released
safely: the callback then frees only its own C memory.

Invariant: a structure whose ``release`` is NULL owns nothing. ``release`` is set before the first
allocation, so a partly filled structure is freed by the same function.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EINVAL, EIO
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strdup


cdef extern from *:
    """
    #include <Python.h>

    /* Whether Python objects can still be released from the calling thread. */
    static inline int kfast_python_is_usable(void) {
        if (!Py_IsInitialized())
            return 0;
    #if PY_VERSION_HEX >= 0x030D0000
        if (Py_IsFinalizing())
    #else
        if (_Py_IsFinalizing())
    #endif
            return PyGILState_Check();
        return 1;
    }
    """
    bint python_is_usable "kfast_python_is_usable"() noexcept nogil


cdef enum:
    ARROW_FLAG_NULLABLE = 2

cdef const char* SCHEMA_CAPSULE = "arrow_schema"
cdef const char* ARRAY_CAPSULE = "arrow_array"
cdef const char* STREAM_CAPSULE = "arrow_array_stream"


cdef struct ArrayHolder:
    Py_buffer* views
    Py_ssize_t held


cdef struct StreamHolder:
    PyObject* schema
    PyObject* arrays
    char* error


cdef tuple checked_node(object node, Py_ssize_t least):
    """Return a node as a tuple; what follows the first ``least`` items may be left out."""
    if not isinstance(node, tuple) or len(<tuple> node) < least or node[least - 1] is None:
        raise TypeError(f"an Arrow node is a tuple of {least} items or more")
    return <tuple> node


# ------------------------------------------------------------------------------------------- schema

cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    cdef int64_t i
    if schema.release is NULL:
        return
    for i in range(schema.n_children):
        if schema.children[i].release is not NULL:
            schema.children[i].release(schema.children[i])
        free(schema.children[i])
    free(schema.children)
    if schema.dictionary is not NULL:
        if schema.dictionary.release is not NULL:
            schema.dictionary.release(schema.dictionary)
        free(schema.dictionary)
    free(<void*> schema.format)
    free(<void*> schema.name)
    free(<void*> schema.metadata)
    memset(schema, 0, sizeof(ArrowSchema))


cdef char* copy_text(bytes text) except NULL:
    """Return a C copy, including zero bytes (metadata has them)."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text) + 1
    cdef char* copy = <char*> calloc(size, 1)
    if copy is NULL:
        raise MemoryError()
    memcpy(copy, PyBytes_AS_STRING(text), size)
    return copy


cdef int fill_schema(ArrowSchema* out, object node) except -1:
    """Fill a zeroed structure; on an error it is released by the caller, children included."""
    cdef tuple fields = checked_node(node, 5)
    cdef tuple children = fields[4]
    cdef int64_t count = len(children)
    out.release = release_schema
    out.format = copy_text(fields[0].encode())
    out.name = copy_text(fields[1].encode())
    if fields[3] is not None:
        out.metadata = copy_text(fields[3])
    out.flags = ARROW_FLAG_NULLABLE if fields[2] else 0
    if count:
        out.children = <ArrowSchema**> calloc(count, sizeof(ArrowSchema*))
        if out.children is NULL:
            raise MemoryError()
        for child in children:
            out.children[out.n_children] = <ArrowSchema*> calloc(1, sizeof(ArrowSchema))
            if out.children[out.n_children] is NULL:
                raise MemoryError()
            out.n_children += 1
            fill_schema(out.children[out.n_children - 1], child)
    if len(fields) > 5 and fields[5] is not None:
        out.dictionary = <ArrowSchema*> calloc(1, sizeof(ArrowSchema))
        if out.dictionary is NULL:
            raise MemoryError()
        fill_schema(out.dictionary, fields[5])
    return 0


cdef void drop_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, SCHEMA_CAPSULE)
    if schema.release is not NULL:
        schema.release(schema)
    free(schema)


def schema_capsule(node) -> object:
    """An ``arrow_schema`` capsule for a schema node."""
    cdef ArrowSchema* schema = <ArrowSchema*> calloc(1, sizeof(ArrowSchema))
    if schema is NULL:
        raise MemoryError()
    try:
        fill_schema(schema, node)
        return PyCapsule_New(schema, SCHEMA_CAPSULE, drop_schema_capsule)
    except BaseException:
        release_schema(schema)
        free(schema)
        raise


cdef bytes metadata_of(const char* encoded):
    """Return a copy of field metadata, whose end only its contents say."""
    cdef const char* at = encoded
    cdef int32_t pairs, size, _i
    if encoded is NULL:
        return None
    memcpy(&pairs, at, 4)
    at += 4
    for _i in range(2 * pairs):
        memcpy(&size, at, 4)
        at += 4 + size
    return encoded[:at - encoded]


cdef tuple schema_node(ArrowSchema* schema):
    cdef int64_t i
    return (
        (<bytes> schema.format).decode(),
        "" if schema.name is NULL else (<bytes> schema.name).decode(),
        schema.flags & ARROW_FLAG_NULLABLE != 0,
        metadata_of(schema.metadata),
        tuple([schema_node(schema.children[i]) for i in range(schema.n_children)]),
        None if schema.dictionary is NULL else schema_node(schema.dictionary),
    )


def read_schema(capsule) -> tuple:
    """Read an ``arrow_schema`` capsule, which is not changed, into a schema node."""
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, SCHEMA_CAPSULE)
    if schema.release is NULL:
        raise ValueError("the Arrow schema has been consumed already")
    return schema_node(schema)


# -------------------------------------------------------------------------------------------- array

cdef void release_views(ArrayHolder* holder) noexcept with gil:
    cdef Py_ssize_t i
    for i in range(holder.held):
        PyBuffer_Release(&holder.views[i])


cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef ArrayHolder* holder
    cdef int64_t i
    if array.release is NULL:
        return
    for i in range(array.n_children):
        if array.children[i].release is not NULL:
            array.children[i].release(array.children[i])
        free(array.children[i])
    free(array.children)
    if array.dictionary is not NULL:
        if array.dictionary.release is not NULL:
            array.dictionary.release(array.dictionary)
        free(array.dictionary)
    free(array.buffers)
    holder = <ArrayHolder*> array.private_data
    if holder is not NULL:
        if holder.held and python_is_usable():
            release_views(holder)
        free(holder.views)
        free(holder)
    memset(array, 0, sizeof(ArrowArray))


cdef int hold_buffers(ArrowArray* out, object buffers) except -1:
    cdef Py_ssize_t count = len(buffers)
    cdef ArrayHolder* holder = <ArrayHolder*> calloc(1, sizeof(ArrayHolder))
    if holder is NULL:
        raise MemoryError()
    out.private_data = holder
    # One more than needed: calloc(0) may give NULL.
    holder.views = <Py_buffer*> calloc(count + 1, sizeof(Py_buffer))
    out.buffers = <const void**> calloc(count + 1, sizeof(void*))
    if holder.views is NULL or out.buffers is NULL:
        raise MemoryError()
    for buffer in buffers:
        if buffer is not None:
            PyObject_GetBuffer(buffer, &holder.views[holder.held], PyBUF_SIMPLE)
            out.buffers[out.n_buffers] = holder.views[holder.held].buf
            holder.held += 1
        out.n_buffers += 1
    return 0


cdef int fill_array(ArrowArray* out, object node) except -1:
    """Fill a zeroed structure; on an error it is released by the caller, children included."""
    cdef ArrowArray* source
    cdef tuple fields, children
    cdef int64_t count
    if PyCapsule_CheckExact(node):
        source = <ArrowArray*> PyCapsule_GetPointer(node, ARRAY_CAPSULE)
        if source.release is NULL:
            raise ValueError("the Arrow array has been consumed already")
        out[0] = source[0]
        source.release = NULL
        return 0
    fields = checked_node(node, 4)
    children = fields[3]
    count = len(children)
    out.release = release_array
    out.length = fields[0]
    out.null_count = fields[1]
    hold_buffers(out, fields[2])
    if count:
        out.children = <ArrowArray**> calloc(count, sizeof(ArrowArray*))
        if out.children is NULL:
            raise MemoryError()
        for child in children:
            out.children[out.n_children] = <ArrowArray*> calloc(1, sizeof(ArrowArray))
            if out.children[out.n_children] is NULL:
                raise MemoryError()
            out.n_children += 1
            fill_array(out.children[out.n_children - 1], child)
    if len(fields) > 4 and fields[4] is not None:
        out.dictionary = <ArrowArray*> calloc(1, sizeof(ArrowArray))
        if out.dictionary is NULL:
            raise MemoryError()
        fill_array(out.dictionary, fields[4])
    return 0


cdef void drop_array_capsule(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, ARRAY_CAPSULE)
    if array.release is not NULL:
        array.release(array)
    free(array)


def array_capsule(node) -> object:
    """An ``arrow_array`` capsule for an array node."""
    cdef ArrowArray* array = <ArrowArray*> calloc(1, sizeof(ArrowArray))
    if array is NULL:
        raise MemoryError()
    try:
        fill_array(array, node)
        return PyCapsule_New(array, ARRAY_CAPSULE, drop_array_capsule)
    except BaseException:
        release_array(array)
        free(array)
        raise


# ------------------------------------------------------------------------------------------- stream

cdef int keep_error(StreamHolder* holder, object error) noexcept:
    """Store the text for get_last_error; a stream's callbacks can only return an errno."""
    free(holder.error)
    holder.error = NULL
    try:
        text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        holder.error = strdup(PyBytes_AS_STRING(text))
    except Exception:
        pass
    return EIO


cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept with gil:
    cdef StreamHolder* holder = <StreamHolder*> stream.private_data
    memset(out, 0, sizeof(ArrowSchema))
    try:
        fill_schema(out, <object> holder.schema)
    except BaseException as error:
        release_schema(out)
        return keep_error(holder, error)
    return 0


cdef int stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept with gil:
    """Make the next chunk, on the consumer's demand: a stream never has two of them."""
    cdef StreamHolder* holder = <StreamHolder*> stream.private_data
    memset(out, 0, sizeof(ArrowArray))
    if holder.error is not NULL:
        return EIO                 # a generator that has raised would seem to be at its end
    if holder.arrays is NULL:
        return 0
    try:
        node = next(<object> holder.arrays, None)
        if node is None:
            arrays = <object> holder.arrays
            Py_DECREF(arrays)
            holder.arrays = NULL
        else:
            fill_array(out, node)
    except BaseException as error:
        release_array(out)
        return keep_error(holder, error)
    return 0


cdef int get_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept nogil:
    return stream_schema(stream, out) if python_is_usable() else EINVAL


cdef int get_next(ArrowArrayStream* stream, ArrowArray* out) noexcept nogil:
    return stream_next(stream, out) if python_is_usable() else EINVAL


cdef const char* get_last_error(ArrowArrayStream* stream) noexcept nogil:
    return (<StreamHolder*> stream.private_data).error


cdef void drop_stream_objects(StreamHolder* holder) noexcept with gil:
    if holder.schema is not NULL:
        schema = <object> holder.schema
        Py_DECREF(schema)
    if holder.arrays is not NULL:
        arrays = <object> holder.arrays
        Py_DECREF(arrays)


cdef void release_stream(ArrowArrayStream* stream) noexcept nogil:
    cdef StreamHolder* holder
    if stream.release is NULL:
        return
    holder = <StreamHolder*> stream.private_data
    if python_is_usable():
        drop_stream_objects(holder)
    free(holder.error)
    free(holder)
    memset(stream, 0, sizeof(ArrowArrayStream))


cdef void drop_stream_capsule(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*> PyCapsule_GetPointer(
        capsule, STREAM_CAPSULE)
    if stream.release is not NULL:
        stream.release(stream)
    free(stream)


def stream_capsule(schema, arrays) -> object:
    """An ``arrow_array_stream`` capsule: a schema node and an iterator of array nodes.

    The iterator is advanced by the consumer, on its thread, one chunk at a time. An exception in it
    ends the stream with the exception's text.
    """
    cdef ArrowArrayStream* stream = <ArrowArrayStream*> calloc(1, sizeof(ArrowArrayStream))
    cdef StreamHolder* holder = <StreamHolder*> calloc(1, sizeof(StreamHolder))
    cdef object iterator
    if stream is NULL or holder is NULL:
        free(stream)
        free(holder)
        raise MemoryError()
    try:
        iterator = iter(arrays)
        capsule = PyCapsule_New(stream, STREAM_CAPSULE, drop_stream_capsule)
    except BaseException:
        free(stream)
        free(holder)
        raise
    Py_INCREF(schema)
    Py_INCREF(iterator)
    holder.schema = <PyObject*> schema
    holder.arrays = <PyObject*> iterator
    stream.private_data = holder
    stream.get_schema = get_schema
    stream.get_next = get_next
    stream.get_last_error = get_last_error
    stream.release = release_stream
    return capsule
