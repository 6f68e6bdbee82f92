// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Programs that test_vm.c runs. */
typedef unsigned long long u64;

extern u64 twice(u64 number);
extern u64 sum(const void *from, u64 length);
extern u64 work(u64 amount);
extern u64 fails(void);

u64 counter = 5;

u64 arguments(u64 a, u64 b, u64 c, u64 d, u64 e)
{
	return a * 10000 + b * 1000 + c * 100 + d * 10 + e;
}

u64 count(void)
{
	return counter++;
}

u64 loop(void)
{
	for (;;)
		counter++;
}

u64 wild(u64 at, u64 value)
{
	*(volatile u64 *)at = value;
	return *(volatile u64 *)at;
}

u64 call_twice(u64 number)
{
	return twice(number) + 1;
}

u64 call_sum(u64 from, u64 length)
{
	return sum((const void *)from, length);
}

u64 call_work(u64 amount)
{
	return work(amount);
}

u64 call_fails(void)
{
	return fails();
}
