/* Program for the tests of the ELF loader, with functions and variables of every kind that clang
 * compiles. */
typedef unsigned long u64;
typedef unsigned int u32;

extern u64 host_add(u64 a, u64 b);
static u64 (*const host_seven)(u64) = (void *)7;

static int table[4] = {10, 20, 30, 40};
const char text[] = "hello";
u64 counter;
static u64 many[100];
static const char *names[2] = {"one", "two"};

struct point {
	int x, y;
	struct point *next;
};
static struct point second = {3, 4, 0};
struct point first = {1, 2, &second};

__attribute__((noinline)) static u64 triple(u64 a)
{
	counter += a;
	return a * 3;
}

__attribute__((noinline)) u64 shared(u64 a)
{
	return triple(a) + 1;
}

/* A global function in its own section. It calls static and global functions of another section,
 * and calls a helper by name. */
__attribute__((section("operations/a"))) u64 calls(u64 i)
{
	return shared(i) + triple(i) + host_add(i, text[i & 3]);
}

/* Calls a helper by number. */
__attribute__((section("operations/b"))) u64 by_number(u64 i)
{
	return host_seven(i) + names[i & 1][0];
}

/* Uses the sections .data and .bss, and variables that contain pointers. */
u64 variables(u64 i)
{
	many[i % 100] += i;
	table[i & 3]++;
	return first.x + first.next->y + table[i & 3] + many[i % 100];
}

/* Uses the stack, sign-extending loads, and a loop. */
u64 stack(u64 n)
{
	volatile signed char buffer[100];
	long sum = 0;
	for (u32 i = 0; i < 100; i++)
		buffer[i] = (signed char)(i * n);
	for (u32 i = 0; i < 100; i++)
		sum += buffer[i];
	return sum;
}

/* A signed division, which clang compiles only with `-mcpu=v4`. */
long divide(long a, long b)
{
#if __BPF_CPU_VERSION__ >= 4
	return a / b + a % b;
#else
	return a + b;
#endif
}

u64 swap(u64 a)
{
	return __builtin_bswap64(a) ^ __builtin_bswap32(a) ^ __builtin_bswap16(a);
}

u64 atomics(u64 a)
{
	u64 old = __sync_fetch_and_add(&counter, a);
	__sync_fetch_and_or(&counter, 1);
	old += __sync_val_compare_and_swap(&counter, a | 1, 99);
	return old + __sync_lock_test_and_set(&counter, 5);
}

/* Never terminates. */
u64 endless(void)
{
	for (;;)
		counter++;
	return 0;
}
