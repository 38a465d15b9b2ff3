/* SPDX-License-Identifier: MIT */
/*
 * What must not compile, as C and as C++. run.py compiles each case with its first word, which has to be an error, and
 * with its second, which has to pass without a warning. A case named ..._in_c or ..._in_cxx is of one language.
 */
#include <stdbool.h>
#include <weft.h>

#ifdef RIGHT
#define WRONG(wrong, right) right
#else
#define WRONG(wrong, right) wrong
#endif

struct point {
    int x, y;
};
struct size {
    int x, y;
};
typedef int unary(int);

extern weft_chan *untyped;
extern weft_chan_of(int) ints;
extern weft_chan_of(double) doubles;
extern weft_chan_of(bool) bools;
extern weft_chan_of(int *) int_pointers;
extern weft_chan_of(const char *) strings;
extern weft_chan_of(char *) buffers;
extern weft_chan_of(unary *) functions;
extern weft_chan_of(struct point) points;
extern weft_chan_of(struct point *) point_pointers;
extern weft_chan_of(weft_chan_of(int)) int_chans;

extern int n, *ip, twice(int);
extern const int cn;
extern unsigned u;
extern long l;
extern float f;
extern double d;
extern void *vp;
extern const char *s;
extern char *b;
extern struct point p;
extern struct size z;
extern long other(long);
extern weft_chan_of(long) longs;

void snippet(void);
void snippet(void)
{
    /* ---- put ---- */
#ifdef put_pointer_for_int
    weft_put(ints, WRONG(&n, n));
#endif
#ifdef put_string_for_int
    weft_put(ints, WRONG("3", 3));
#endif
#ifdef put_struct_for_int
    weft_put(ints, WRONG(p, p.x));
#endif
#ifdef put_pointer_for_double
    weft_put(doubles, WRONG(&d, d));
#endif
#ifdef put_int_for_pointer
    weft_put(int_pointers, WRONG(n, &n));
#endif
#ifdef put_double_for_pointer
    weft_put(int_pointers, WRONG(d, &n));
#endif
#ifdef put_other_pointer
    weft_put(int_pointers, WRONG(&d, &n));
#endif
#ifdef put_unsigned_pointer_for_int_pointer
    weft_put(int_pointers, WRONG(&u, &n));
#endif
#ifdef put_pointer_to_pointer
    weft_put(int_pointers, WRONG(&ip, ip));
#endif
#ifdef put_void_pointer
    weft_put(int_pointers, WRONG(vp, ip));
#endif
#ifdef put_pointer_to_const
    weft_put(int_pointers, WRONG(&cn, &n));
#endif
#ifdef put_const_string_for_buffer
    weft_put(buffers, WRONG(s, b));
#endif
#ifdef put_int_for_string
    weft_put(strings, WRONG('a', "a"));
#endif
#ifdef put_other_function
    weft_put(functions, WRONG(other, twice));
#endif
#ifdef put_other_struct
    weft_put(points, WRONG(z, p));
#endif
#ifdef put_int_for_struct
    weft_put(points, WRONG(n, p));
#endif
#ifdef put_address_of_struct
    weft_put(points, WRONG(&p, p));
#endif
#ifdef put_struct_for_its_address
    weft_put(point_pointers, WRONG(p, &p));
#endif
#ifdef put_address_of_other_struct
    weft_put(point_pointers, WRONG(&z, &p));
#endif
#ifdef put_other_channel
    weft_put(int_chans, WRONG(longs, ints));
#endif
#ifdef put_untyped_channel
    weft_put(int_chans, WRONG(untyped, ints));
#endif
#ifdef put_into_untyped_channel
    weft_put(WRONG(untyped, ints), 3);
#endif
#ifdef try_put_other_pointer
    weft_try_put(int_pointers, WRONG(&d, &n));
#endif
#ifdef try_put_pointer_for_int
    weft_try_put(ints, WRONG(&n, n));
#endif
#ifdef put_zero_for_pointer_in_c
    weft_put(int_pointers, WRONG(0, NULL));
#endif
#ifdef put_pointer_for_bool_in_c
    weft_put(bools, WRONG(ip, ip != NULL));
#endif

    /* ---- take ---- */
#ifdef take_int_into_long
    weft_take(ints, WRONG(&l, &n));
#endif
#ifdef take_int_into_unsigned
    weft_take(ints, WRONG(&u, &n));
#endif
#ifdef take_double_into_float
    weft_take(doubles, WRONG(&f, &d));
#endif
#ifdef take_without_address
    weft_take(ints, WRONG(n, &n));
#endif
#ifdef take_into_const
    weft_take(ints, WRONG(&cn, &n));
#endif
#ifdef take_into_void_pointer
    weft_take(ints, WRONG(vp, ip));
#endif
#ifdef take_int_into_pointer
    weft_take(ints, WRONG(&ip, ip));
#endif
#ifdef take_pointer_into_int
    weft_take(int_pointers, WRONG(&n, &ip));
#endif
#ifdef take_pointer_into_void_pointer
    weft_take(int_pointers, WRONG(&vp, &ip));
#endif
#ifdef take_string_into_buffer
    weft_take(strings, WRONG(&b, &s));
#endif
#ifdef take_into_other_struct
    weft_take(points, WRONG(&z, &p));
#endif
#ifdef take_from_untyped_channel
    weft_take(WRONG(untyped, ints), &n);
#endif
#ifdef try_take_int_into_long
    weft_try_take(ints, WRONG(&l, &n));
#endif

    /* ---- select ---- */
#ifdef select_put_long_for_int
    (void)WEFT_PUT(ints, WRONG(&l, &n));
#endif
#ifdef select_put_without_address
    (void)WEFT_PUT(ints, WRONG(n, &n));
#endif
#ifdef select_put_other_struct
    (void)WEFT_PUT(points, WRONG(&z, &p));
#endif
#ifdef select_take_int_into_long
    (void)WEFT_TAKE(ints, WRONG(&l, &n));
#endif
#ifdef select_take_into_const
    (void)WEFT_TAKE(ints, WRONG(&cn, &n));
#endif
#ifdef select_take_from_untyped_channel
    (void)WEFT_TAKE(WRONG(untyped, ints), &n);
#endif

    /* ---- the channel ---- */
#ifdef close_of_untyped_channel
    weft_close_of(WRONG(untyped, ints));
#endif
#ifdef len_of_int_pointer
    (void)weft_len_of(WRONG(ip, ints));
#endif
#ifdef typed_of_typed_channel
    (void)weft_typed(int, WRONG(longs, untyped));
#endif
#ifdef untyped_of_untyped_channel
    (void)weft_untyped(WRONG(untyped, ints));
#endif
#ifdef assign_other_channel_in_cxx
    ints = WRONG(longs, ints);
#endif
#ifdef make_other_channel_in_cxx
    ints = weft_make(WRONG(long, int), 3);
#endif
#ifdef make_for_class_with_destructor_in_cxx
    struct plain {
        int n;
    };
    struct owner {
        ~owner()
        {
        }
    };
    (void)weft_make(WRONG(owner, plain), 3);
#endif
}
